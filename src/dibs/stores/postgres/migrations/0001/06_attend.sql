-- Says that this connection hears of claims that are made for it, on the channel dibs_hand_<its number>, for as long as it
-- lives: its lock tells. Answers the number.
create function dibs.attend() returns integer
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select pg_backend_pid() from pg_advisory_lock(dibs.attendance(), pg_backend_pid()) $$;
