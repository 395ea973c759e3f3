-- Records how claims ended; see Store.settle. Inputs: one array per property, all of one length; `outcomes` are
-- succeeded, retry, failed, cancelled, released, snoozed; `steps` are those that a success adds to its flow, see
-- dibs.add_steps. Returns a verdict for each, in order: accepted or lost.
create function dibs.settle(
    ids uuid[], epochs integer[], workers text[], outcomes text[], results json[] default null,
    errors text[] default null, tracebacks text[] default null, delays interval[] default null,
    steps json[] default null
) returns text[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- Rows are reached through the primary key in the order of their ids, so that two calls cannot deadlock. The join is
-- written as `= any (array[…])` because it cannot be turned around then: with `=` and statistics from when the queue was
-- empty, the planner reads the whole table and looks each row up among the items.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    ended integer;
    ended_steps integer[];
begin
    if not outcomes <@ array['succeeded', 'retry', 'failed', 'cancelled', 'released', 'snoozed']
        or array[cardinality(epochs), cardinality(workers), cardinality(outcomes)]
            is distinct from array_fill(cardinality(ids), array[3]) then
        raise 'settle takes ids, epochs, workers and outcomes in arrays of one length; an outcome is one of %',
            'succeeded, retry, failed, cancelled, released, snoozed' using errcode = 'invalid_parameter_value';
    end if;
    if outcomes && array['retry', 'released', 'snoozed'] then
        -- Whether such a job ends or goes back depends on what others may be changing: nobody does from here on.
        perform from dibs.job where job.id = any (ids) and job.flow is null order by job.id for update;
    end if;

    with item as materialized (
        select * from unnest(ids, epochs, workers, outcomes, results, errors, tracebacks, steps)
            as item (id, epoch, worker, outcome, result, error, traceback, steps)
        where item.steps is null
        order by item.id
    ), gone as (
        delete from dibs.job using item
        where job.id = any (array[item.id]) and job.epoch = item.epoch and job.worker = item.worker and job.locked_until > moment
            and job.flow is null and (
                item.outcome in ('succeeded', 'failed', 'cancelled') or job.cancel_asked
                or (item.outcome = 'retry' and job.attempts >= job.max_attempts)
            )
        returning job.*, item.outcome as how, item.result, item.error, item.traceback
    ), kept as (
        insert into dibs.finished (
            id, run_at, created_at, started_at, finished_at, epoch, priority, attempts, max_attempts, cancel_asked,
            state, worker, outcome, queue, task, key, flow, step, args, meta, errors, result, report,
            unique_until, expires_at, limit_key
        )
        select
            id, run_at, created_at, started_at, moment, epoch, priority, attempts, max_attempts, cancel_asked,
            case how when 'succeeded' then 'succeeded' when 'failed' then 'failed' when 'cancelled' then 'cancelled'
                else case when cancel_asked then 'cancelled' else 'failed' end end,
            worker, how, queue, task, key, flow, step, args, meta,
            case when how not in ('retry', 'failed') then errors else dibs.with_error(
                errors, attempts, epoch, worker, started_at, moment, coalesce(error, 'no error was given'),
                coalesce(traceback, '')
            ) end,
            case when how = 'succeeded' then coalesce(result, 'null') end, report, unique_until, expires_at, limit_key
        from gone
        returning 1
    )
    select count(*) into ended from kept;

    if ended = cardinality(ids) then
        return array_fill('accepted'::text, array[cardinality(ids)]);
    end if;
    if outcomes && array['retry', 'released', 'snoozed'] then
        perform dibs.put_back(ids, epochs, workers, outcomes, errors, tracebacks, delays, moment, of_steps => false);
    end if;
    if steps is not null or exists (select from dibs.job where job.id = any (ids) and job.flow is not null) then
        ended_steps := dibs.settle_steps(
            ids, epochs, workers, outcomes, results, errors, tracebacks, delays, steps, moment
        );
    end if;
    return dibs.verdicts(ids, epochs, workers, outcomes, ended_steps);
end
$$;
