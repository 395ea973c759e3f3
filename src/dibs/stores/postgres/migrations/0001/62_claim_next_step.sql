-- Takes the step that has been due the longest, of a running flow, for a worker: one row, or none. Looks in the given
-- queues, or in all that are not paused, and at the given tasks, or at all.
create function dibs.claim_next_step(
    worker text, lease interval default '30 seconds', queues text[] default null, tasks text[] default null
) returns setof dibs.claimed
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    step uuid;
    before uuid;
begin
    loop
        select job.id into step from dibs.job
        where job.flow is not null and job.unmet = 0 and job.run_at <= moment
            and (job.locked_until is null or job.locked_until <= moment)
            and (queues is null or job.queue = any (queues)) and (tasks is null or job.task = any (tasks))
            and not exists (select from dibs.queue where queue.name = job.queue and queue.paused)
            and exists (select from dibs.flow where flow.id = job.flow and flow.state = 'running')
        order by job.run_at, job.id
        limit 1 for update of job skip locked;
        -- The same one again: it is over, but its flow is locked. Somebody else will end it.
        exit when not found or step = before;
        return query select * from dibs.claim_take(array[step], claim_next_step.worker, lease);
        exit when found;
        before := step;
    end loop;
end
$$;
