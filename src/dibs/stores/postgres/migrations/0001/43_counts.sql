-- Every queue that has jobs or settings, with its jobs counted by state; see Store.counts.
create function dibs.counts() returns table (
    queue text, paused boolean, lifo boolean, ageing interval, waiting bigint, queued bigint, running bigint, succeeded bigint,
    failed bigint, cancelled bigint, scheduled bigint, oldest_due timestamptz
)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
begin
    return query
    with open as (
        select
            job.queue,
            count(*) filter (where job.unmet > 0) as waiting,
            count(*) filter (where job.unmet = 0 and job.locked_until is null) as queued,
            count(*) filter (where job.locked_until is not null) as running,
            count(*) filter (where job.unmet = 0 and job.locked_until is null and job.run_at > moment) as scheduled,
            min(job.run_at) filter (where job.unmet = 0 and job.locked_until is null and job.run_at <= moment)
                as oldest_due
        from dibs.job group by job.queue
    ), closed as (
        select
            finished.queue,
            count(*) filter (where finished.state = 'succeeded') as succeeded,
            count(*) filter (where finished.state = 'failed') as failed,
            count(*) filter (where finished.state = 'cancelled') as cancelled
        from dibs.finished group by finished.queue
    ), named as (
        select open.queue from open union select closed.queue from closed union select queue.name from dibs.queue
    )
    select
        named.queue, coalesce(queue.paused, false), coalesce(queue.lifo, false), queue.ageing,
        coalesce(open.waiting, 0),
        coalesce(open.queued, 0), coalesce(open.running, 0), coalesce(closed.succeeded, 0), coalesce(closed.failed, 0),
        coalesce(closed.cancelled, 0), coalesce(open.scheduled, 0), open.oldest_due
    from named
    left join open on open.queue = named.queue
    left join closed on closed.queue = named.queue
    left join dibs.queue on queue.name = named.queue
    order by named.queue;
end
$$;
