-- The jobs that may be running: all that are, and some that were.
create function dibs.maybe_running() returns uuid[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select array(
        select unnest(taken.jobs)
        from dibs.unswept() as unswept join dibs.taken
            on taken.claimed_in >= unswept.since or taken.claimed_in = any (unswept.besides)
    )
$$;
