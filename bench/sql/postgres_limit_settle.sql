-- The limit's settle on PostgreSQL: moves succeeded jobs to the history, fenced by epoch, worker and lease.
-- $1 ids, $2 epochs, $3 results, $4 worker; gives how many were accepted
with item as materialized (
    select * from unnest($1::uuid[], $2::integer[], $3::json[]) as item (id, epoch, result)
    order by item.id
), gone as (
    delete from dibs.job using item
    where job.id = item.id and job.epoch = item.epoch and job.worker = $4 and job.locked_until > now()
    returning job.*, item.result
), kept as (
    insert into dibs.finished (
        id, run_at, created_at, started_at, finished_at, epoch, priority, attempts, max_attempts, cancel_asked,
        state, worker, outcome, queue, task, key, flow, step, args, meta, errors, result
    )
    select
        id, run_at, created_at, started_at, now(), epoch, priority, attempts, max_attempts, cancel_asked,
        'succeeded', worker, 'succeeded', queue, task, key, flow, step, args, meta, errors, result
    from gone
    returning 1
)
select count(*) from kept
