-- Steps of these flows, locked by the caller, are no longer finished: the flows run, and what has not started waits for
-- what it needs and has not succeeded. A needed step that is gone, and its link, counts as one that succeeded with nothing to say.
create function dibs.begin_again(flows uuid[], moment timestamptz) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    due text[];
begin
    update dibs.flow set state = 'running', finished_at = null where flow.id = any (flows);
    perform from dibs.job where job.flow = any (flows) and job.locked_until is null order by job.id for update;
    with item as materialized (
        select job.id, job.unmet as before, need.unmet, need.inputs
        from dibs.job cross join lateral (
            select
                count(*) filter (where not each.met)::integer as unmet,
                json_object_agg(each.name, coalesce(each.result, 'null')) filter (where each.met) as inputs
            from (
                select need.name, finished.result, link.step is null or finished.state is not distinct from 'succeeded' as met
                from unnest(job.needs, job.need_ids) as need (name, id)
                left join dibs.need as link on link.needs = any (array[need.id]) and link.step = any (array[job.id])
                left join dibs.finished on finished.id = any (array[link.needs])
            ) as each
        ) as need
        where job.flow = any (flows) and job.locked_until is null
        order by job.id
    ), moved as (
        update dibs.job set
            unmet = item.unmet,
            inputs = item.inputs,
            run_at = case when item.before > 0 and item.unmet = 0 then greatest(job.run_at, moment) else job.run_at end
        from item
        where job.id = any (array[item.id])
        returning job.queue, job.unmet
    )
    select array_agg(distinct moved.queue) filter (where moved.unmet = 0) into due from moved;
    if due is not null then
        perform dibs.wake(due);
    end if;
end
$$;
