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
    ), line as (
        select
            lane.queue, sum(due.queued) as queued, sum(due.running) as running, sum(later.count) as scheduled,
            min(due.oldest) as oldest, bool_or(due.queued + due.running >= most) as many, bool_or(later.count >= most) as later
        from (select * from lane limit 500) as lane
        cross join lateral (
            select
                count(*) filter (where first.locked_until is null) as queued,
                count(*) filter (where first.locked_until is not null) as running,
                min(first.run_at) filter (where first.locked_until is null) as oldest
            from (
                select job.locked_until, job.run_at from dibs.job
                where job.queue = lane.queue and job.unmet = 0 and job.priority = lane.priority and job.run_at <= moment
                order by job.run_at, job.id limit most
            ) as first
        ) as due
        cross join lateral (
            select count(*) from (
                select from dibs.job
                where job.queue = lane.queue and job.unmet = 0 and job.priority = lane.priority and job.run_at > moment
                limit most
            ) as first
        ) as later
        group by lane.queue
    ), step as materialized (
        select job.queue, job.unmet > 0 as waits from dibs.job where job.flow is not null limit most
    ), recent as materialized (
        select finished.queue, finished.state from dibs.finished order by finished.id desc limit most
    ), ended as materialized (
        select recent.queue, recent.state from recent where recent.state = 'succeeded'
        union all
        (
            select finished.queue, finished.state from dibs.finished
            where finished.state <> 'succeeded' and finished.state = 'failed' order by finished.id desc limit most
        )
        union all
        (
            select finished.queue, finished.state from dibs.finished
            where finished.state <> 'succeeded' and finished.state = 'cancelled' order by finished.id desc limit most
        )
    ), named as (
        select line.queue from line union select step.queue from step union select ended.queue from ended
        union select queue.name from dibs.queue
    )
    select
        named.queue, coalesce(queue.paused, false), coalesce(queue.lifo, false), queue.ageing,
        (select count(*) from step where step.queue = named.queue and step.waits),
        coalesce(line.queued + line.scheduled, 0)::bigint, coalesce(line.running, 0)::bigint,
        (select count(*) from ended where ended.queue = named.queue and ended.state = 'succeeded'),
        (select count(*) from ended where ended.queue = named.queue and ended.state = 'failed'),
        (select count(*) from ended where ended.queue = named.queue and ended.state = 'cancelled'),
        coalesce(line.scheduled, 0)::bigint, line.oldest,
        array_remove(array[
            case when line.many or line.later then 'queued' end,
            case when line.many then 'running' end,
            case when (select count(*) from step) >= most then 'waiting' end,
            case when (select count(*) from recent) >= most then 'succeeded' end,
            case when (select count(*) from ended where ended.state = 'failed') >= most then 'failed' end,
            case when (select count(*) from ended where ended.state = 'cancelled') >= most then 'cancelled' end
        ], null)
    from named
    left join line on line.queue = named.queue
    left join dibs.queue on queue.name = named.queue
    order by named.queue;
end
$$;
