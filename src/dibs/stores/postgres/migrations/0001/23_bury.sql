-- Ends those of the first `max_jobs` claimable jobs of a lane that are not to be started (again). Returns how many.
create function dibs.bury(
    queue text, lane integer, lifo boolean, tasks text[], moment timestamptz, max_jobs integer
) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    ended uuid[];
begin
    select array_agg(passed.id) filter (where passed.over) into ended
    from dibs.look(queue, lane, lifo, tasks, moment, max_jobs) as passed;
    return case when ended is null then 0 else dibs.end_expired(ended, moment) end;
end
$$;
