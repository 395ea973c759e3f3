-- Whether a connection that said dibs.attend still lives.
create function dibs.attends(listener text) returns boolean
language sql volatile
as $$ select not pg_try_advisory_xact_lock_shared(hashtext('dibs attend'), hashtext(listener)) $$;
