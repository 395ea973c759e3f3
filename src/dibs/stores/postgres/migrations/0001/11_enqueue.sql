-- Stores one job. Only the task is needed; the answer names the job, whether it is new, and whether it was there and
-- is changed now, as `on_conflict` says: existing, replace or debounce.
create function dibs.enqueue(
    task text, args json default '{}', queue text default 'default', priority integer default 0,
    run_at timestamptz default null, max_attempts integer default 5, key text default null,
    meta json default '{}', id uuid default null, unique_for interval default null,
    on_conflict text default 'existing', max_delay interval default null, expires_at timestamptz default null,
    limit_key text default null
) returns table (id uuid, created boolean, changed boolean)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
    select * from dibs.enqueue_arrays(
        array[coalesce(enqueue.id, dibs.new_id())], array[queue], array[task], array[args], array[priority::smallint],
        array[run_at], array[max_attempts::smallint], array[key], array[meta],
        true, array[expires_at], array[limit_key], array[unique_for], array[on_conflict], array[max_delay]
    )
$$;
