-- What dibs.claim does in a queue that ages or comes under limits: one phase after the other, until there are enough or
-- there are no more.
create function dibs.claim_in_steps(queue text, worker text, max_jobs integer, lease interval, tasks text[])
returns setof dibs.claimed
language plpgsql volatile
as $$
declare
    wanted integer := max_jobs;
    locked uuid[];
    before uuid[];
    taken integer;
begin
    while wanted > 0 loop
        locked := dibs.claim_lock(queue, wanted, tasks);
        -- The same again: steps that end as soon as their flow is free.
        exit when locked = '{}' or locked = before;
        before := locked;
        return query select * from dibs.claim_take(locked, worker, lease);
        get diagnostics taken = row_count;
        wanted := wanted - taken;
        exit when taken = cardinality(locked);
    end loop;
end
$$;
