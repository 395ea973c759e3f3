-- Takes the step that has been due the longest, of a running flow, for a worker: one row, or none. Looks in the given
-- queues, or in all that are not paused, and at the given tasks, or at all. Steps that a limit has no room for are left.
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
    step dibs.job;
    before uuid;
    room dibs.room;
    -- What has no room: tasks, queues, and keys, each beside its queue.
    full_tasks text[] := '{}';
    full_queues text[] := '{}';
    full_keys text[] := '{}';
begin
    lock table dibs.gate in row share mode;
    loop
        select job.* into step from dibs.job
        where job.flow is not null and job.unmet = 0 and job.run_at <= moment
            and (job.locked_until is null or job.locked_until <= moment)
            and (queues is null or job.queue = any (queues)) and (tasks is null or job.task = any (tasks))
            and not exists (select from dibs.queue where queue.name = job.queue and queue.paused)
            and exists (select from dibs.flow where flow.id = job.flow and flow.state = 'running')
            and (dibs.is_over(job, moment) or not (
                job.task = any (full_tasks) or job.queue = any (full_queues)
                or (job.limit_key is not null and job.queue || e'\n' || job.limit_key = any (full_keys))
            ))
        order by job.run_at, job.id
        limit 1 for update of job skip locked;
        -- The same one again: it is over, but its flow is locked. Somebody else will end it.
        exit when not found or step.id = before;
        room := dibs.lacking(step, moment, may_wait => before is null);
        if room.kind is null then
            return query select * from dibs.claim_take(array[step.id], claim_next_step.worker, lease);
            exit when found;
        else
            case room.kind
                when 'task' then full_tasks := full_tasks || step.task;
                when 'queue' then full_queues := full_queues || step.queue;
                else full_keys := full_keys || (step.queue || e'\n' || step.limit_key);
            end case;
        end if;
        before := step.id;
    end loop;
end
$$;
