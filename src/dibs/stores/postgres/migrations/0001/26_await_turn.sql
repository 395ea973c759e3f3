-- Waits until nobody else takes many jobs of the queue at once, for a tenth of a second at most: see dibs.claim.
--
-- Claims never need each other's permission: rows that are locked are skipped. But of many claims at once each walks past
-- what the others are taking, and the more of them there are for each processor, the further. In turns, nobody does.
-- The wait has an end, since a claim within somebody's transaction keeps its turn until that is over.
create function dibs.await_turn(queue text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
begin
    perform pg_advisory_xact_lock(1684628083, hashtext(queue)); -- the number is "dibs" in ASCII
exception when lock_not_available then
    null;
end
$$;
