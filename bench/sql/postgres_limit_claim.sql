-- The limit's claim on PostgreSQL: what dibs.claim does to a fifo queue, as one plain statement on the same table.
-- $1 queue, $2 worker, $3 limit, $4 lease, $5 $6 $7 the place (priority, run_at, id) that was claimed up to
--
-- It starts behind the last place like dibs does: a claim that walks the dead front of the index would be no limit.
-- It knows nothing of pauses, lifo, tasks, priorities with future jobs, used-up attempts and asked cancels.
with taken as (
    update dibs.job set
        worker = $2, locked_until = now() + $4::interval, started_at = now(), outcome = null,
        epoch = job.epoch + 1, attempts = job.attempts + 1
    where job.ctid = any (array(
        select job.ctid
        from dibs.job
        where job.queue = $1 and job.unmet = 0 and job.run_at <= now()
            and (job.priority, job.run_at, job.id) > ($5::smallint, $6::timestamptz, $7::uuid)
            and (job.locked_until is null or job.locked_until <= now())
        order by job.priority, job.run_at, job.id
        limit $3::integer for update skip locked
    ))
    returning
        job.id, job.epoch, job.task, job.args, job.priority, job.run_at, job.created_at, job.attempts,
        job.max_attempts, job.locked_until, job.key, job.meta
)
select * from taken order by taken.priority, taken.run_at, taken.id
