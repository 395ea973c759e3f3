-- Says that this connection hears of claims on the channel dibs_hand_<listener>, for as long as it lives: its lock tells. The
-- name is made up by the connection, and too long to be guessed: whoever knows it could listen there, or make up claims.
create function dibs.attend(listener text) returns void
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select pg_advisory_lock(hashtext('dibs attend'), hashtext(listener)) $$;
