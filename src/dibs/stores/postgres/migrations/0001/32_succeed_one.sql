-- What dibs.succeed does to several claims, for one: where nothing is hurried, jobs end one at a time. Nothing to unnest, to sort
-- or to join: an eighth less of the whole call. `result` null means that the result is null. Returns the verdict: accepted or lost.
create function dibs.succeed_one(id uuid, epoch integer, worker text, result json default null) returns text
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
begin
    with gone as (
        delete from dibs.job
        where job.id = succeed_one.id and job.epoch = succeed_one.epoch and job.worker = succeed_one.worker
            and job.locked_until > moment and job.flow is null
        returning job.*
    )
    insert into dibs.finished (
        id, run_at, created_at, started_at, finished_at, epoch, priority, attempts, max_attempts, cancel_asked,
        state, worker, outcome, queue, task, key, flow, step, args, meta, errors, result, report,
        unique_until, expires_at, limit_key
    )
    select
        id, run_at, created_at, started_at, moment, epoch, priority, attempts, max_attempts, cancel_asked,
        'succeeded', worker, 'succeeded', queue, task, key, flow, step, args, meta, errors,
        coalesce(succeed_one.result, 'null'), report, unique_until, expires_at, limit_key
    from gone;
    if found then
        return 'accepted';
    end if;
    -- It is lost, or a step.
    return (dibs.succeed(array[id], array[epoch], worker, array[result]))[1];
end
$$;
