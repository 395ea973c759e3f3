-- The commonest part of dibs.settle, with nothing in it that the commonest case does not need: claims of one worker that
-- all succeeded. `results` null means that each result is null.
create function dibs.succeed(ids uuid[], epochs integer[], worker text, results json[] default null) returns text[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    accepted integer;
begin
    with item as materialized (
        select * from unnest(ids, epochs, results) as item (id, epoch, result) order by item.id
    ), gone as (
        delete from dibs.job using item
        where job.id = any (array[item.id]) and job.epoch = item.epoch and job.worker = succeed.worker
            and job.locked_until > moment and job.flow is null
        returning job.*, item.result
    )
    insert into dibs.finished (
        id, run_at, created_at, started_at, finished_at, epoch, priority, attempts, max_attempts, cancel_asked,
        state, worker, outcome, queue, task, key, flow, step, args, meta, errors, result, report,
        unique_until, expires_at, limit_key
    )
    select
        id, run_at, created_at, started_at, moment, epoch, priority, attempts, max_attempts, cancel_asked,
        'succeeded', worker, 'succeeded', queue, task, key, flow, step, args, meta, errors, coalesce(result, 'null'),
        report, unique_until, expires_at, limit_key
    from gone;
    get diagnostics accepted = row_count;
    if accepted = cardinality(ids) then
        return array_fill('accepted'::text, array[accepted]);
    end if;
    return dibs.succeed_rest(ids, epochs, worker, results, moment, accepted);
end
$$;
