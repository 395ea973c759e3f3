-- Ends expired jobs, locked by the caller, one after another in the order given. A step is left alone if its flow, or
-- a step that would end with it, is locked by somebody else: who claims does not wait. Returns how many have ended.
create function dibs.end_expired(ids uuid[], moment timestamptz) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    plain constant uuid[] := array(select id from dibs.job where id = any (ids) and flow is null);
    ended integer := dibs.finish(plain, moment, error => 'lease expired');
    step uuid;
begin
    if cardinality(plain) < cardinality(ids) then
        for step in
            select item.id from unnest(ids) with ordinality as item (id, place)
            where item.id <> all (plain) order by item.place
        loop
            ended := ended + dibs.end_expired_step(step, moment);
        end loop;
    end if;
    return ended;
end
$$;
