-- Every worker that was seen or holds a claim; see Store.workers.
create function dibs.workers() returns table (name text, seen_at timestamptz, running bigint, info json)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    with holder as (
        select worker as name, count(*) as running from dibs.job
        where id = any ((select dibs.maybe_running())::uuid[]) and locked_until is not null
        group by worker
    )
    select
        coalesce(known.name, holder.name) as name, known.seen_at, coalesce(holder.running, 0),
        coalesce(known.info, '{}')
    from dibs.worker as known full join holder on holder.name = known.name
    order by name
$$;
