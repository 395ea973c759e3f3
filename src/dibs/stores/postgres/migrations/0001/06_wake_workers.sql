-- Tells workers that a claim of theirs is to end: time for a heartbeat.
create function dibs.wake_workers(workers text[]) returns void
language sql volatile
as $$ select pg_notify('dibs_asked', name) from (select distinct unnest(workers) as name) as named $$;
