-- The jobs behind `after` that match a filter (see dibs.matching), newest first; see Store.find.
-- With `floor`, no older ones than that; see dibs.floor_of.
create function dibs.find(
    which jsonb default '{}', after uuid default null, max_jobs integer default 100, floor uuid default null
)
returns setof dibs.jobs
language sql stable security definer
set search_path = pg_catalog, pg_temp
-- Each is fetched by its id, however many the planner takes them for.
set enable_mergejoin = off
set enable_hashjoin = off
as $$
    select jobs.*
    from dibs.matching(
        which, array['waiting', 'queued', 'running', 'succeeded', 'failed', 'cancelled'], after, max_jobs, floor
    ) with ordinality as found (id, place)
    join dibs.jobs on jobs.id = found.id
    order by found.place
$$;
