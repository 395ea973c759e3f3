-- Tells waiting workers that these queues may have due work. Sent when the transaction commits, never if it does not.
create function dibs.wake(queues text[]) returns void
language sql volatile
as $$ select pg_notify('dibs', name) from (select distinct unnest(queues) as name) as named $$;
