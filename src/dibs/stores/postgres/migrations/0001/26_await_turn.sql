-- Waits until nobody else takes many jobs of the queue at once, for a tenth of a second at most: see dibs.claim.
--
-- Claims never need each other's permission: rows that are locked are skipped. But of many claims at once each walks past
-- what the others are taking, and the more of them there are for each processor, the further. In turns, nobody does.
-- The wait has an end, since a claim within somebody's transaction keeps its turn until that is over; it ends sooner where
-- the server looks for deadlocks sooner and finds one, of two transactions that claim from two queues in opposite orders.
create function dibs.await_turn(queue text) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    ours constant integer := 1684628083; -- "dibs" in ASCII
    turn constant integer := hashtext(queue);
begin
    if not pg_try_advisory_xact_lock(ours, turn) then
        begin
            perform pg_advisory_xact_lock(ours, turn);
        exception when lock_not_available or deadlock_detected then
            null;
        end;
    end if;
end
$$;
