-- Steps, now among the finished, have failed or were cancelled. Their flow stops, as the first of them says, and with it
-- every unfinished step; or, if it is to continue, only those that wait for them. The flows are locked by the caller,
-- and so is whatever is not waiting in those that stop.
create function dibs.stop_steps(ids uuid[], moment timestamptz) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    stopped uuid[];
    doomed uuid[];
    asked text[];
begin
    with fallen as (
        select distinct on (finished.flow) finished.flow, finished.state
        from unnest(ids) with ordinality as over (id, place)
        cross join lateral (select * from dibs.finished where finished.id = over.id limit 1) as finished
        order by finished.flow, over.place
    ), touched as (
        update dibs.flow set
            flawed = true,
            state = case when flow.state = 'running' and flow.on_failure = 'stop' then fallen.state else flow.state end
        from fallen
        where flow.id = any (array[fallen.flow])
            and (not flow.flawed or (flow.state = 'running' and flow.on_failure = 'stop'))
        returning flow.id, flow.on_failure
    )
    select array_agg(touched.id) filter (where touched.on_failure = 'stop') into stopped from touched;
    if stopped is not null then
        with asking as (
            update dibs.job set cancel_asked = true
            where job.flow = any (stopped) and job.locked_until is not null and not job.cancel_asked
            returning job.worker
        )
        select array_agg(asking.worker) into asked from asking;
        if asked is not null then
            perform dibs.wake_workers(asked);
        end if;
        select array_agg(job.id order by job.id) into doomed
        from dibs.job where job.flow = any (stopped) and job.locked_until is null;
    end if;
    with recursive behind as (
        select job.id
        from unnest(ids) as over (id)
        join dibs.need on need.needs = any (array[over.id])
        join dibs.job on job.id = any (array[need.step]) and job.unmet > 0
        join dibs.flow on flow.id = any (array[job.flow]) and flow.on_failure = 'continue'
        union
        select job.id
        from behind
        join dibs.need on need.needs = any (array[behind.id])
        join dibs.job on job.id = any (array[need.step]) and job.unmet > 0
    )
    select doomed || array_agg(behind.id order by behind.id) into doomed from behind;
    if doomed is not null then
        perform dibs.finish(doomed, moment, 'cancelled', asked => true);
    end if;
end
$$;
