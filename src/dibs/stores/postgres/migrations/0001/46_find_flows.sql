-- The flows behind `after` in one of the states, or in any, newest first; see Store.flows.
create function dibs.find_flows(states text[] default null, after uuid default null, max_flows integer default 100)
returns setof dibs.flows
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select flows.*
    from dibs.flows
    where (after is null or flows.id < after) and (states is null or flows.state = any (states))
    order by flows.id desc
    limit max_flows
$$;
