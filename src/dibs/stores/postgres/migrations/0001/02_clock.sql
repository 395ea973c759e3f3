-- The only clock of dibs. Read once per call; a caller's long transaction has an old now(), so that is not used.
create function dibs.clock() returns timestamptz
language sql volatile parallel safe
as $$ select clock_timestamp() $$;
