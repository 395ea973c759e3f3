-- Gives out jobs of the queue again; see Store.resume.
create function dibs.resume(queue text) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select dibs.pause(queue, paused => false) $$;
