-- The advisory lock that keeps claims and changes of limits apart.
create function dibs.gate() returns bigint
language sql immutable parallel safe
as $$ select 7236833205834105702 $$;
