-- The first `max_jobs` claimable jobs of a lane behind a place (null: from the beginning), locked, in the order of the
-- queue; in a fifo queue also before a place (null: to the end). Those that somebody else has locked are passed over, and so are, unless they are over, those for which the
-- limits of a queue (`shut`), of tasks or of keys have no room.
create function dibs.look(
    queue text, lane integer, lifo boolean, tasks text[], moment timestamptz, max_jobs integer,
    behind dibs.candidate default null, shut boolean default false, full_tasks text[] default '{}',
    full_keys text[] default '{}', until dibs.candidate default null
) returns setof dibs.candidate
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    from_run_at constant timestamptz := coalesce(behind.run_at, case when lifo then 'infinity' else '-infinity' end::timestamptz);
    from_id constant uuid := coalesce(behind.id, '00000000-0000-0000-0000-000000000000');
    to_run_at constant timestamptz := coalesce(until.run_at, 'infinity');
    to_id constant uuid := coalesce(until.id, '00000000-0000-0000-0000-000000000000');
begin
    if lifo then
        return query
        select job.id, job.priority, job.run_at, job.task, job.limit_key, judged.over
        from dibs.job cross join lateral (
            select coalesce(job.expires_at <= moment, false)
                or (job.locked_until is not null and (job.cancel_asked or job.attempts >= job.max_attempts)) as over
        ) as judged
        where job.queue = look.queue and job.unmet = 0 and job.priority = lane and job.run_at <= moment
            and (job.run_at, job.id) < (from_run_at, from_id)
            and (job.locked_until is null or job.locked_until <= moment)
            and (tasks is null or job.task = any (tasks))
            and (judged.over or not (
                shut or job.task = any (full_tasks) or coalesce(job.limit_key = any (full_keys), false)
            ))
        order by job.run_at desc, job.id desc
        limit max_jobs for update of job skip locked;
    else
        return query
        select job.id, job.priority, job.run_at, job.task, job.limit_key, judged.over
        from dibs.job cross join lateral (
            select coalesce(job.expires_at <= moment, false)
                or (job.locked_until is not null and (job.cancel_asked or job.attempts >= job.max_attempts)) as over
        ) as judged
        where job.queue = look.queue and job.unmet = 0 and job.priority = lane and job.run_at <= moment
            and (job.run_at, job.id) > (from_run_at, from_id) and (job.run_at, job.id) < (to_run_at, to_id)
            and (job.locked_until is null or job.locked_until <= moment)
            and (tasks is null or job.task = any (tasks))
            and (judged.over or not (
                shut or job.task = any (full_tasks) or coalesce(job.limit_key = any (full_keys), false)
            ))
        order by job.run_at, job.id
        limit max_jobs for update of job skip locked;
    end if;
end
$$;
