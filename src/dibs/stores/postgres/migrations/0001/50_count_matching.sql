-- How many jobs behind `after` match a filter and are in one of the states: the dry run of the bulk verbs.
create function dibs.count_matching(which jsonb, states text[], after uuid default null) returns bigint
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$ select count(*) from dibs.matching(which, states, after, null) $$;
