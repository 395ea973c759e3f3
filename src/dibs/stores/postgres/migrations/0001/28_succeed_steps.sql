-- The part of dibs.succeed, and of dibs.settle, for steps that succeeded and add none. Their flows are locked first, then
-- they are, in the order of their ids. Returns how many there were.
create function dibs.succeed_steps(
    ids uuid[], epochs integer[], workers text[], results json[], moment timestamptz
) returns integer
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    flows uuid[];
    ended uuid[];
begin
    select array_agg(distinct job.flow) into flows
    from unnest(ids) as item (id) join dibs.job on job.id = any (array[item.id])
    where job.flow is not null;
    if flows is null then
        return 0;
    end if;
    perform from dibs.flow where flow.id = any (flows) order by flow.id for update;
    with item as materialized (
        select * from unnest(ids, epochs, workers, results) as item (id, epoch, worker, result) order by item.id
    ), gone as (
        delete from dibs.job using item
        where job.id = any (array[item.id]) and job.epoch = item.epoch and job.worker = item.worker
            and job.locked_until > moment and job.flow is not null
        returning job.*, item.result
    ), kept as (
        insert into dibs.finished (
            id, run_at, created_at, started_at, finished_at, epoch, priority, attempts, max_attempts, cancel_asked,
            state, worker, outcome, queue, task, key, flow, step, args, meta, errors, result, report,
            unique_until, expires_at, limit_key, needs, need_ids, inputs
        )
        select
            id, run_at, created_at, started_at, moment, epoch, priority, attempts, max_attempts, cancel_asked,
            'succeeded', worker, 'succeeded', queue, task, key, flow, step, args, meta, errors,
            coalesce(result, 'null'), report, unique_until, expires_at, limit_key, needs, need_ids, inputs
        from gone
        returning id, flow
    )
    select array_agg(kept.id), array_agg(distinct kept.flow) into ended, flows from kept;
    if ended is null then
        return 0;
    end if;
    perform dibs.release_steps(ended, moment);
    perform dibs.close_flows(flows, moment);
    return cardinality(ended);
end
$$;
