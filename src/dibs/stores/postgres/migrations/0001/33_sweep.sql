-- Recovers up to `max_jobs` expired jobs of every queue, the longest expired first; see Store.sweep.
create function dibs.sweep(max_jobs integer default 1000) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    expired uuid[];
    over uuid[];
    due text[];
begin
    select array_agg(late.id), array_agg(late.id) filter (where late.over)
    into expired, over
    from (
        select job.id, job.cancel_asked or job.attempts >= job.max_attempts as over
        from dibs.job
        where job.locked_until <= moment
        order by job.locked_until, job.id
        limit max_jobs for update skip locked
    ) as late;
    if over is not null then
        perform dibs.end_expired(over, moment);
    end if;
    with back as (
        update dibs.job set
            locked_until = null,
            errors = dibs.with_error(
                job.errors, job.attempts, job.epoch, job.worker, job.started_at, moment, 'lease expired', ''
            )
        where job.id = any (expired)
        returning job.queue
    )
    select array_agg(distinct back.queue) into due from back;
    if due is not null then
        perform dibs.wake(due);
    end if;
    return coalesce(cardinality(expired), 0);
end
$$;
