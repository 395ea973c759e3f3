-- Moves jobs, locked by the caller, to the finished ones. Without `as_state` they end as those do that are not to be
-- started (again): cancelled if that was asked, failed if their lease expired with no attempts left, else cancelled.
-- `asked` says that this is a cancel, `error` what to keep about the attempt, if there is one. Returns how many. If there
-- are steps among them, dibs.steps_ended comes next.
create function dibs.finish(
    ids uuid[], moment timestamptz, as_state text default null, asked boolean default false,
    as_outcome text default null, as_result json default null, error text default null, traceback text default ''
) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    ended integer;
begin
    with gone as (
        delete from dibs.job where job.id = any (ids)
        returning job.*
    ), kept as (
        insert into dibs.finished (
            id, run_at, created_at, started_at, finished_at, epoch, priority, attempts, max_attempts, cancel_asked,
            state, worker, outcome, queue, task, key, flow, step, args, meta, errors, result, report,
            unique_until, expires_at, limit_key, needs, need_ids, inputs
        )
        select
            id, run_at, created_at, started_at, moment, epoch, priority, attempts, max_attempts, cancel_asked or asked,
            coalesce(as_state, case
                when not cancel_asked and locked_until is not null and attempts >= max_attempts then 'failed'
                else 'cancelled'
            end),
            worker, as_outcome, queue, task, key, flow, step, args, meta,
            case when error is null or locked_until is null then errors
                else dibs.with_error(errors, attempts, epoch, worker, started_at, moment, error, traceback) end,
            as_result, report, unique_until, expires_at, limit_key, needs, need_ids,
            case when unmet > 0 then dibs.inputs_of(id, needs, need_ids, inputs) else inputs end
        from gone
        returning 1
    )
    select count(*) into ended from kept;
    return ended;
end
$$;
