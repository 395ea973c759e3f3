-- Moves expired jobs, locked by the caller, to the finished ones. Returns how many.
create function dibs.end_expired(ids uuid[], moment timestamptz) returns integer
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    with gone as (
        delete from dibs.job where id = any (ids)
        returning *
    ), kept as (
        insert into dibs.finished (
            id, run_at, created_at, started_at, finished_at, epoch, priority, attempts, max_attempts, cancel_asked,
            state, worker, queue, task, key, flow, step, args, meta, errors, report
        )
        select
            id, run_at, created_at, started_at, moment, epoch, priority, attempts, max_attempts, cancel_asked,
            case when cancel_asked then 'cancelled' else 'failed' end, worker, queue, task, key, flow, step, args, meta,
            dibs.with_error(errors, attempts, epoch, worker, started_at, moment, 'lease expired', ''), report
        from gone
        returning 1
    )
    select count(*)::integer from kept
$$;
