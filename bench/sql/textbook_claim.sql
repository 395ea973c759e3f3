-- Takes what is due and, as dibs.claim does, what was left behind by an expired lease and has attempts left; both in
-- the order of the queue.
-- $1 queue, $2 worker, $3 limit, $4 lease
with due as materialized (
    select id, priority, run_at from textbook.job
    where queue = $1 and state = 'queued' and run_at <= now()
    order by priority, run_at, id
    limit $3::integer for update skip locked
), late as materialized (
    select id, priority, run_at from textbook.job
    where queue = $1 and state = 'running' and locked_until <= now() and attempts < max_attempts and not cancel_asked
    order by locked_until
    limit $3::integer for update skip locked
), taken as (
    update textbook.job set
        state = 'running', worker = $2, locked_until = now() + $4::interval, started_at = now(),
        epoch = job.epoch + 1, attempts = job.attempts + 1,
        errors = case when job.locked_until is null then job.errors else
            (coalesce(job.errors::jsonb, '[]') || jsonb_build_object('epoch', job.epoch, 'error', 'lease expired'))::json
        end
    from (
        select id from (select * from due union all select * from late) as found
        order by priority, run_at, id
        limit $3::integer
    ) as found
    where job.id = found.id
    returning
        job.id, job.epoch, job.task, job.args, job.priority, job.run_at, job.created_at, job.attempts,
        job.max_attempts, job.locked_until, job.key, job.meta
)
select * from taken order by taken.priority, taken.run_at, taken.id
