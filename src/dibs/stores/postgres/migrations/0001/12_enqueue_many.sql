-- Stores many jobs, all or none. `jobs` is a JSON array of objects with the names that dibs.enqueue takes; a task is
-- all that each needs. Returns, in the order given, the job that stands for each, and whether it is new, or changed.
create function dibs.enqueue_many(jobs json) returns table (id uuid, created boolean, changed boolean)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
    select stored.*
    from (
        select
            array_agg(coalesce(job.id, dibs.new_id(place::integer)) order by place) as ids,
            array_agg(coalesce(job.queue, 'default') order by place) as queues,
            array_agg(job.task order by place) as tasks,
            array_agg(coalesce(job.args, '{}') order by place) as args,
            array_agg(coalesce(job.priority, 0::smallint) order by place) as priorities,
            array_agg(job.run_at order by place) as run_ats,
            array_agg(coalesce(job.max_attempts, 5::smallint) order by place) as max_attempts,
            array_agg(job.key order by place) as keys,
            array_agg(coalesce(job.meta, '{}') order by place) as metas,
            array_agg(job.expires_at order by place) as expiries,
            array_agg(job.limit_key order by place) as limit_keys,
            array_agg(job.unique_for order by place) as unique_fors,
            array_agg(coalesce(job.on_conflict, 'existing') order by place) as on_conflicts,
            array_agg(job.max_delay order by place) as max_delays
        from json_array_elements(enqueue_many.jobs) with ordinality as entry (job, place)
        cross join lateral json_to_record(entry.job) as job (
            id uuid, queue text, task text, args json, priority smallint, run_at timestamptz, max_attempts smallint,
            key text, meta json, expires_at timestamptz, limit_key text, unique_for interval, on_conflict text,
            max_delay interval
        )
    ) as given
    cross join lateral dibs.enqueue_arrays(
        given.ids, given.queues, given.tasks, given.args, given.priorities, given.run_ats, given.max_attempts,
        given.keys, given.metas, true, given.expiries, given.limit_keys, given.unique_fors, given.on_conflicts,
        given.max_delays
    ) as stored
    where given.ids is not null
$$;
