-- What dibs.counts gives, for whoever does not want to wait: of each state of a queue about `most` jobs are counted, of
-- finished ones the newest of all queues. `more` names the states that have more.
create function dibs.counts_up_to(most integer) returns table (
    queue text, paused boolean, lifo boolean, ageing interval, waiting bigint, queued bigint, running bigint, succeeded bigint,
    failed bigint, cancelled bigint, scheduled bigint, oldest_due timestamptz, more text[]
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
-- Steps from lane to lane and reads no more of each than it counts, whatever the statistics say.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set max_parallel_workers_per_gather = 0
set random_page_cost = 1.1
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
begin
    return query
    with recursive lane as (
        (
            select job.queue, job.priority from dibs.job where job.unmet = 0
            order by job.queue, job.priority limit 1
        )
        union all
        select next.queue, next.priority
        from lane cross join lateral (
            select job.queue, job.priority from dibs.job
            where job.unmet = 0 and (job.queue, job.priority) > (lane.queue, lane.priority)
            order by job.queue, job.priority limit 1
        ) as next
    ), share as (
        -- Of a queue with several priorities, each has a part of what is counted.
        select lane.queue, lane.priority, greatest(1, most / count(*) over (partition by lane.queue)) as most
        from (select * from lane limit 500) as lane
    ), line as (
        select
            share.queue, sum(due.queued) as queued, sum(due.running) as running, sum(later.count) as scheduled,
            min(first.run_at) as oldest, bool_or(due.queued + due.running >= share.most) as many,
            bool_or(later.count >= share.most) as later
        from share
        cross join lateral (
            select
                count(*) filter (where first.locked_until is null) as queued,
                count(*) filter (where first.locked_until is not null) as running
            from (
                select job.locked_until from dibs.job
                where job.queue = share.queue and job.unmet = 0 and job.priority = share.priority and job.run_at <= moment
                order by job.run_at, job.id limit share.most
            ) as first
        ) as due
        cross join lateral (
            select count(*) from (
                select from dibs.job
                where job.queue = share.queue and job.unmet = 0 and job.priority = share.priority and job.run_at > moment
                limit share.most
            ) as first
        ) as later
        left join lateral (
            -- Behind those that run, which may be more than are counted.
            select job.run_at from dibs.job
            where job.queue = share.queue and job.unmet = 0 and job.priority = share.priority and job.run_at <= moment
                and job.locked_until is null
            order by job.run_at, job.id limit 1
        ) as first on true
        group by share.queue
    ), seen as materialized (
        (select job.queue, case when job.unmet > 0 then 'waiting' end as state, 'step' as part
            from dibs.job where job.flow is not null limit most)
        union all
        (select finished.queue, case when finished.state = 'succeeded' then finished.state end, 'recent'
            from dibs.finished order by finished.id desc limit most)
        union all
        (select finished.queue, finished.state, 'failed' from dibs.finished
            where finished.state <> 'succeeded' and finished.state = 'failed' order by finished.id desc limit most)
        union all
        (select finished.queue, finished.state, 'cancelled' from dibs.finished
            where finished.state <> 'succeeded' and finished.state = 'cancelled' order by finished.id desc limit most)
    ), other as (
        select
            seen.queue,
            count(*) filter (where seen.state = 'waiting') as waiting,
            count(*) filter (where seen.state = 'succeeded') as succeeded,
            count(*) filter (where seen.state = 'failed') as failed,
            count(*) filter (where seen.state = 'cancelled') as cancelled
        from seen group by seen.queue
    ), whole as materialized (
        select
            count(*) filter (where seen.part = 'step') >= most as waiting,
            count(*) filter (where seen.part = 'recent') >= most as succeeded,
            count(*) filter (where seen.part = 'failed') >= most as failed,
            count(*) filter (where seen.part = 'cancelled') >= most as cancelled
        from seen
    ), named as (
        select line.queue from line union select other.queue from other union select queue.name from dibs.queue
    )
    select
        named.queue, coalesce(queue.paused, false), coalesce(queue.lifo, false), queue.ageing,
        coalesce(other.waiting, 0), coalesce(line.queued + line.scheduled, 0)::bigint, coalesce(line.running, 0)::bigint,
        coalesce(other.succeeded, 0), coalesce(other.failed, 0), coalesce(other.cancelled, 0),
        coalesce(line.scheduled, 0)::bigint, line.oldest,
        array_remove(array[
            case when line.many or line.later then 'queued' end,
            case when line.many then 'running' end,
            case when whole.waiting then 'waiting' end,
            case when whole.succeeded then 'succeeded' end,
            case when whole.failed then 'failed' end,
            case when whole.cancelled then 'cancelled' end
        ], null)
    from named
    cross join whole
    left join line on line.queue = named.queue
    left join other on other.queue = named.queue
    left join dibs.queue on queue.name = named.queue
    order by named.queue;
end
$$;
