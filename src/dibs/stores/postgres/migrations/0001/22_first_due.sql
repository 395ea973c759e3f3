-- The first `max_jobs` claimable jobs of a lane, locked, in the order of the queue: where each row is, and what limits have
-- to know of it. `plain`: it is not over. `after_…`: the place behind which it looks, if any; not for lifo.
create function dibs.first_due(
    queue text, lane integer, lifo boolean, tasks text[], moment timestamptz, max_jobs integer,
    after_run_at timestamptz, after_id uuid
) returns table (spot tid, id uuid, epoch integer, task text, limit_key text, plain boolean)
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    from_run_at constant timestamptz := coalesce(after_run_at, '-infinity');
    from_id constant uuid := coalesce(after_id, '00000000-0000-0000-0000-000000000000');
begin
    if lifo then
        return query
        select job.ctid, job.id, job.epoch, job.task, job.limit_key, coalesce(job.expires_at > moment, true)
            and (job.locked_until is null or not (job.cancel_asked or job.attempts >= job.max_attempts))
        from dibs.job
        where job.queue = first_due.queue and job.unmet = 0 and job.priority = lane and job.run_at <= moment
            and (job.locked_until is null or job.locked_until <= moment)
            and (tasks is null or job.task = any (tasks))
        order by job.run_at desc, job.id desc
        limit max_jobs for update skip locked;
    else
        return query
        select job.ctid, job.id, job.epoch, job.task, job.limit_key, coalesce(job.expires_at > moment, true)
            and (job.locked_until is null or not (job.cancel_asked or job.attempts >= job.max_attempts))
        from dibs.job
        where job.queue = first_due.queue and job.unmet = 0 and job.priority = lane and job.run_at <= moment
            and (job.run_at, job.id) > (from_run_at, from_id)
            and (job.locked_until is null or job.locked_until <= moment)
            and (tasks is null or job.task = any (tasks))
        order by job.run_at, job.id
        limit max_jobs for update skip locked;
    end if;
end
$$;
