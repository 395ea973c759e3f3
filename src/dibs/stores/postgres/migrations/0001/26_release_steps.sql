-- Steps, now among the finished, have succeeded: those that wait for nothing else are queued, with the results as their
-- inputs. The flows are locked by the caller. Every waiting step that is touched is locked in the order of the ids.
create function dibs.release_steps(ids uuid[], moment timestamptz) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    due text[];
begin
    with met as materialized (
        select need.step as id, count(*)::integer as many
        from unnest(ids) as over (id) join dibs.need on need.needs = any (array[over.id])
        group by need.step order by need.step
    ), target as materialized (
        select
            met.id, met.many,
            json_object_agg(need.name, coalesce(finished.result, job.inputs -> need.name))
                filter (where need.name is not null) as inputs
        from met
        join dibs.job on job.id = any (array[met.id])
        left join lateral unnest(
            case when job.unmet = met.many then job.needs end, case when job.unmet = met.many then job.need_ids end
        ) as need (name, id) on true
        left join dibs.finished on finished.id = any (array[need.id]) and finished.state = 'succeeded'
            and exists (
                select from dibs.need as link
                where link.needs = any (array[need.id]) and link.step = any (array[met.id])
            )
        group by met.id, met.many order by met.id
    ), moved as (
        update dibs.job set
            unmet = job.unmet - target.many,
            run_at = case when job.unmet > target.many then job.run_at else greatest(job.run_at, moment) end,
            inputs = case when job.unmet > target.many then job.inputs else target.inputs end
        from target
        where job.id = any (array[target.id]) and job.unmet > 0
        returning job.queue, job.unmet, job.run_at
    )
    select array_agg(distinct moved.queue) filter (where moved.unmet = 0 and moved.run_at <= moment) into due
    from moved;
    if due is not null then
        perform dibs.wake(due);
    end if;
end
$$;
