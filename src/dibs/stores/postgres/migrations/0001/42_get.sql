-- One job as it is now, or no row.
create function dibs.get(id uuid) returns setof dibs.jobs
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$ select * from dibs.jobs where jobs.id = get.id $$;
