-- $1 queue, $2 worker, $3 limit, $4 lease
with taken as (
    update textbook.job set
        state = 'running', worker = $2, locked_until = now() + $4::interval, started_at = now(),
        epoch = job.epoch + 1, attempts = job.attempts + 1
    from (
        select id from textbook.job
        where queue = $1 and state = 'queued' and run_at <= now()
        order by priority, run_at, id
        limit $3::integer for update skip locked
    ) as due
    where job.id = due.id
    returning
        job.id, job.epoch, job.task, job.args, job.priority, job.run_at, job.created_at, job.attempts,
        job.max_attempts, job.locked_until, job.key, job.meta
)
select * from taken order by taken.priority, taken.run_at, taken.id
