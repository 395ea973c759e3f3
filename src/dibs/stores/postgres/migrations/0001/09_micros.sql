-- An interval in microseconds.
create function dibs.micros(span interval) returns bigint
language sql immutable strict parallel safe
as $$ select round((extract(epoch from span) * 1000000)::numeric)::bigint $$;
