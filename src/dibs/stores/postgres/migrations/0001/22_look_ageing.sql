-- As dibs.look, in a queue that ages, over all of its lanes: each is in the order of its jobs, so that the first of all
-- are among the first of each. First it is seen how many of each lane are among them, then so many are locked.
create function dibs.look_ageing(
    queue text, ageing interval, tasks text[], moment timestamptz, max_jobs integer,
    behind dibs.candidate default null, shut boolean default false, full_tasks text[] default '{}',
    full_keys text[] default '{}'
) returns setof dibs.candidate
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    from_age constant timestamptz := coalesce(behind.run_at + behind.priority * ageing, '-infinity');
    from_id constant uuid := coalesce(behind.id, '00000000-0000-0000-0000-000000000000');
    lanes smallint[] := '{}';
    shares integer[];
    lane integer := -32769;
begin
    loop
        lane := dibs.next_lane(queue, lane, null);
        exit when lane is null;
        lanes := lanes || lane::smallint;
    end loop;
    select array_agg(first.lane), array_agg(first.share) into lanes, shares
    from (
        select found.lane, count(*)::integer as share
        from (
            select lane.number as lane
            from unnest(lanes) as lane (number) cross join lateral (
                select job.id, job.run_at from dibs.job
                where job.queue = look_ageing.queue and job.unmet = 0 and job.priority = lane.number
                    and job.run_at <= moment
                    and job.run_at >= from_age - lane.number * ageing
                    and (job.run_at + lane.number * ageing, job.id) > (from_age, from_id)
                    and (job.locked_until is null or job.locked_until <= moment)
                    and (tasks is null or job.task = any (tasks))
                    and (
                        job.expires_at <= moment
                        or (job.locked_until is not null and (job.cancel_asked or job.attempts >= job.max_attempts))
                        or not (shut or job.task = any (full_tasks) or coalesce(job.limit_key = any (full_keys), false))
                    )
                order by job.run_at, job.id
                limit max_jobs
            ) as job
            order by job.run_at + lane.number * ageing, job.id
            limit max_jobs
        ) as found
        group by found.lane
    ) as first;
    return query
    select job.id, job.priority, job.run_at, job.task, job.limit_key, job.over
    from unnest(lanes, shares) as lane (number, share) cross join lateral (
        select
            job.id, job.priority, job.run_at, job.task, job.limit_key,
            coalesce(job.expires_at <= moment, false)
                or (job.locked_until is not null and (job.cancel_asked or job.attempts >= job.max_attempts)) as over
        from dibs.job
        where job.queue = look_ageing.queue and job.unmet = 0 and job.priority = lane.number and job.run_at <= moment
            and job.run_at >= from_age - lane.number * ageing
            and (job.run_at + lane.number * ageing, job.id) > (from_age, from_id)
            and (job.locked_until is null or job.locked_until <= moment)
            and (tasks is null or job.task = any (tasks))
            and (
                job.expires_at <= moment
                or (job.locked_until is not null and (job.cancel_asked or job.attempts >= job.max_attempts))
                or not (shut or job.task = any (full_tasks) or coalesce(job.limit_key = any (full_keys), false))
            )
        order by job.run_at, job.id
        limit lane.share for update skip locked
    ) as job
    order by job.run_at + lane.number * ageing, job.id;
end
$$;
