-- Ends those of the first `max_jobs` claimable jobs of a lane that are not to run again: the lease expired with no
-- attempts left (failed), or after a cancel was asked (cancelled). Returns how many.
create function dibs.bury(
    queue text, lane integer, lifo boolean, tasks text[], moment timestamptz, max_jobs integer
) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    ended uuid[];
begin
    if lifo then
        select array_agg(passed.id) filter (where passed.over) into ended
        from (
            select job.id, job.locked_until is not null and (job.cancel_asked or job.attempts >= job.max_attempts) as over
            from dibs.job
            where job.queue = bury.queue and job.priority = lane and job.unmet = 0 and job.run_at <= moment
                and (job.locked_until is null or job.locked_until <= moment)
                and (tasks is null or job.task = any (tasks))
            order by job.run_at desc, job.id desc
            limit max_jobs for update skip locked
        ) as passed;
    else
        select array_agg(passed.id) filter (where passed.over) into ended
        from (
            select job.id, job.locked_until is not null and (job.cancel_asked or job.attempts >= job.max_attempts) as over
            from dibs.job
            where job.queue = bury.queue and job.priority = lane and job.unmet = 0 and job.run_at <= moment
                and (job.locked_until is null or job.locked_until <= moment)
                and (tasks is null or job.task = any (tasks))
            order by job.run_at, job.id
            limit max_jobs for update skip locked
        ) as passed;
    end if;
    return case when ended is null then 0 else dibs.end_expired(ended, moment) end;
end
$$;
