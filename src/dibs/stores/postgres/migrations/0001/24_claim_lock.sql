-- The first phase of a claim in two: locks up to `max_jobs` claimable jobs of a queue, until the transaction ends, and
-- returns their ids in the order of the queue. The second is dibs.claim_take.
create function dibs.claim_lock(queue text, max_jobs integer, tasks text[] default null) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    newest_first boolean := false;
    stopped boolean := false;
    lane integer := -32769;
    locked uuid[] := '{}';
begin
    select queue.lifo, queue.paused into newest_first, stopped from dibs.queue where queue.name = claim_lock.queue;
    while not coalesce(stopped, false) and cardinality(locked) < max_jobs loop
        lane := dibs.next_lane(queue, lane, null);
        exit when lane is null;
        if newest_first then
            locked := locked || array(
                select job.id from dibs.job
                where job.queue = claim_lock.queue and job.unmet = 0 and job.priority = lane and job.run_at <= moment
                    and (job.locked_until is null or job.locked_until <= moment)
                    and (tasks is null or job.task = any (tasks))
                order by job.run_at desc, job.id desc
                limit max_jobs - cardinality(locked) for update skip locked
            );
        else
            locked := locked || array(
                select job.id from dibs.job
                where job.queue = claim_lock.queue and job.unmet = 0 and job.priority = lane and job.run_at <= moment
                    and (job.locked_until is null or job.locked_until <= moment)
                    and (tasks is null or job.task = any (tasks))
                order by job.run_at, job.id
                limit max_jobs - cardinality(locked) for update skip locked
            );
        end if;
    end loop;
    return locked;
end
$$;
