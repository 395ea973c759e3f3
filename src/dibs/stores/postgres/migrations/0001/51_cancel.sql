-- Cancels unfinished jobs that match, up to `max_jobs` of them; see Store.cancel. Returns how many, and where to go on.
create function dibs.cancel(
    which jsonb, force boolean default false, after uuid default null, max_jobs integer default 1000
) returns table (count integer, next_after uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    chunk constant uuid[] := array(
        select dibs.matching(dibs.chosen(which), array['waiting', 'queued', 'running'], after, max_jobs)
    );
    touched integer;
begin
    perform from dibs.job where job.id = any (chunk) order by job.id for update;
    with gone as (
        delete from dibs.job where job.id = any (chunk) and (force or job.locked_until is null)
        returning *
    ), kept as (
        insert into dibs.finished (
            id, run_at, created_at, started_at, finished_at, epoch, priority, attempts, max_attempts, cancel_asked,
            state, worker, queue, task, key, flow, step, args, meta, errors, report
        )
        select
            id, run_at, created_at, started_at, moment, epoch, priority, attempts, max_attempts, true,
            'cancelled', worker, queue, task, key, flow, step, args, meta, errors, report
        from gone
        returning 1
    ), asked as (
        update dibs.job set cancel_asked = true
        where job.id = any (chunk) and not force and job.locked_until is not null
        returning 1
    )
    select (select count(*) from kept) + (select count(*) from asked) into touched;
    return query select touched, dibs.last_of(chunk, max_jobs);
end
$$;
