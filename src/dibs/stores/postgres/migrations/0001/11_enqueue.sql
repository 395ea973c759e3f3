-- Stores one job. Only the task is needed; the answer names the job, and whether it is new.
create function dibs.enqueue(
    task text, args json default '{}', queue text default 'default', priority integer default 0,
    run_at timestamptz default null, max_attempts integer default 5, key text default null,
    meta json default '{}', id uuid default null
) returns table (id uuid, created boolean)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
    select * from dibs.enqueue_arrays(
        array[coalesce(enqueue.id, dibs.new_id())], array[queue], array[task], array[args], array[priority::smallint],
        array[run_at], array[max_attempts::smallint], array[key], array[meta]
    )
$$;
