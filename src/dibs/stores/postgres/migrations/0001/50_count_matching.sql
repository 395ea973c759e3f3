-- How many jobs behind `after` match a filter and are in one of the states: the dry run of the bulk verbs. With `most`
-- it stops there.
create function dibs.count_matching(
    which jsonb,
    states text[] default array['waiting', 'queued', 'running', 'succeeded', 'failed', 'cancelled'],
    after uuid default null,
    most integer default null
) returns bigint
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$ select count(*) from dibs.matching(which, states, after, most) $$;
