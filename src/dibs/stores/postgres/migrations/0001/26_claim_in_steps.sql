-- What dibs.claim does in a queue that ages or comes under limits. For the last five see there.
--
-- As long as all limits surely have room for what comes next, it is taken as it comes. The rest is judged one by one.
create function dibs.claim_in_steps(
    queue text, worker text, max_jobs integer, lease interval, tasks text[], after_priority smallint[],
    after_run_at timestamptz[], after_id uuid[], thorough boolean, looked_at timestamptz
) returns setof dibs.claimed
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    wanted integer := max_jobs;
    locked uuid[];
    before uuid[];
    taken integer;
    -- Whoever has limits of tasks already must not wait for others.
    may_wait boolean := exists (select from dibs.queue where queue.name = claim_in_steps.queue and queue.ageing is not null);
begin
    return query select * from dibs.claim_freely(
        queue, worker, max_jobs, lease, tasks, after_priority, after_run_at, after_id, thorough, looked_at
    );
    get diagnostics taken = row_count;
    wanted := wanted - taken;
    while wanted > 0 loop
        locked := dibs.claim_lock(queue, wanted, tasks, after_priority, after_run_at, after_id, thorough, may_wait);
        -- The same again: steps that end as soon as their flow is free.
        exit when locked = '{}' or locked = before;
        before := locked;
        may_wait := false;
        return query select * from dibs.claim_take(locked, worker, lease);
        get diagnostics taken = row_count;
        wanted := wanted - taken;
        exit when taken = cardinality(locked);
    end loop;
end
$$;
