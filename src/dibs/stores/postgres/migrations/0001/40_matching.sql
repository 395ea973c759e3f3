-- The ids of the jobs behind `after` that match a filter and are in one of the states, newest first.
-- `which` is a JSON object with any of: ids, queues, tasks, states, workers, keys, flows (arrays), created_since,
-- created_before, finished_since, finished_before (times), everything (true). Every one that is given must hold; a name that is none of
-- these is refused, because a filter with a typing error would match too much.
-- With `floor`, no older ones than that.
create function dibs.matching(which jsonb, states text[], after uuid, max_jobs integer, floor uuid default null)
returns setof uuid
language plpgsql stable
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_custom_plan
as $$
declare
    fields constant text[] := array[
        'ids', 'queues', 'tasks', 'states', 'workers', 'keys', 'flows', 'created_since', 'created_before',
        'finished_since', 'finished_before', 'everything'
    ];
    asked constant text[] := dibs.texts(which -> 'states');
    wanted constant text[] := case when asked is null then states
        else array(select unnest(states) intersect select unnest(asked)) end;
    running constant uuid[] := case when wanted = array['running'] then dibs.maybe_running() end;
    ids constant uuid[] := dibs.texts(which -> 'ids')::uuid[];
    queues constant text[] := dibs.texts(which -> 'queues');
    tasks constant text[] := dibs.texts(which -> 'tasks');
    workers constant text[] := dibs.texts(which -> 'workers');
    keys constant text[] := dibs.texts(which -> 'keys');
    flows constant uuid[] := dibs.texts(which -> 'flows')::uuid[];
    created_since constant timestamptz := which ->> 'created_since';
    created_before constant timestamptz := which ->> 'created_before';
    finished_since constant timestamptz := which ->> 'finished_since';
    finished_before constant timestamptz := which ->> 'finished_before';
begin
    if which is null or which - fields <> '{}' then
        raise 'a filter is an object with any of %, not %', array_to_string(fields, ', '), coalesce(which::text, 'null')
            using errcode = 'invalid_parameter_value';
    end if;
    return query
    select found.id
    from (
        -- Each half by itself, so that it is read by its own index, and no further than it has to be.
        (select job.id
        from dibs.job
        where wanted && array['waiting', 'queued', 'running'] and finished_since is null and finished_before is null
            and (running is null or job.id = any (running))
            and (
                ('waiting' = any (wanted) and job.unmet > 0 and job.flow is not null)
                or ('queued' = any (wanted) and job.unmet = 0 and job.locked_until is null)
                or ('running' = any (wanted) and job.unmet = 0 and job.locked_until is not null)
            )
            and (after is null or job.id < after) and (floor is null or job.id >= floor)
            and (ids is null or job.id = any (ids))
            and (queues is null or job.queue = any (queues)) and (tasks is null or job.task = any (tasks))
            and (workers is null or job.worker = any (workers)) and (keys is null or job.key = any (keys))
            and (flows is null or job.flow = any (flows))
            and (created_since is null or job.created_at >= created_since)
            and (created_before is null or job.created_at < created_before)
        order by job.id desc limit max_jobs)
        union all
        (select finished.id
        from dibs.finished
        where wanted && array['succeeded', 'failed', 'cancelled'] and finished.state = any (wanted)
            -- So that it sees the index of what did not succeed, and its order.
            and ('succeeded' = any (wanted) or finished.state <> 'succeeded')
            and (cardinality(wanted) > 1 or finished.state = wanted[1])
            and (after is null or finished.id < after) and (floor is null or finished.id >= floor)
            and (ids is null or finished.id = any (ids))
            and (queues is null or finished.queue = any (queues)) and (tasks is null or finished.task = any (tasks))
            and (workers is null or finished.worker = any (workers)) and (keys is null or finished.key = any (keys))
            and (flows is null or finished.flow = any (flows))
            and (created_since is null or finished.created_at >= created_since)
            and (created_before is null or finished.created_at < created_before)
            and (finished_since is null or finished.finished_at >= finished_since)
            and (finished_before is null or finished.finished_at < finished_before)
        order by finished.id desc limit max_jobs)
    ) as found
    order by found.id desc
    limit max_jobs;
end
$$;
