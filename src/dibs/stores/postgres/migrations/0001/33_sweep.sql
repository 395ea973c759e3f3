-- Recovers up to `max_jobs` expired jobs of every queue, the longest expired first; see Store.sweep.
create function dibs.sweep(max_jobs integer default 1000) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    plain uuid[];
    over uuid[];
    steps uuid[];
    one uuid;
    touched integer;
begin
    select
        array_agg(late.id) filter (where late.flow is null),
        array_agg(late.id) filter (where late.flow is null and late.over),
        array_agg(late.id order by late.locked_until, late.id) filter (where late.flow is not null)
    into plain, over, steps
    from (
        select job.id, job.flow, job.locked_until, job.cancel_asked or job.attempts >= job.max_attempts as over
        from dibs.job
        where job.locked_until <= moment
        order by job.locked_until, job.id
        limit max_jobs for update skip locked
    ) as late;
    if over is not null then
        perform dibs.end_expired(over, moment);
    end if;
    perform dibs.recover(plain, moment);
    touched := coalesce(cardinality(plain), 0);
    foreach one in array coalesce(steps, '{}') loop
        -- Looked at again: the end of one before it may have asked to cancel it.
        if exists (
            select from dibs.job where job.id = one and (job.cancel_asked or job.attempts >= job.max_attempts)
        ) then
            touched := touched + dibs.end_expired(array[one], moment);
        else
            perform dibs.recover(array[one], moment);
            touched := touched + 1;
        end if;
    end loop;
    return touched;
end
$$;
