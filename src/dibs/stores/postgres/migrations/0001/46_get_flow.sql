-- One flow as it is now, or no row.
create function dibs.get_flow(id uuid) returns setof dibs.flows
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$ select * from dibs.flows where flows.id = get_flow.id $$;
