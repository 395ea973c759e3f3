-- What dibs.claim does to one lane of a lifo queue.
create function dibs.claim_newest(
    queue text, lane integer, worker text, wanted integer, lease interval, tasks text[], moment timestamptz
) returns setof dibs.claimed
language sql volatile
as $$
    with due as materialized (
        select
            job.ctid as spot, job.id, job.run_at, job.flow,
            coalesce(job.expires_at <= moment, false)
                or (job.locked_until is not null and (job.cancel_asked or job.attempts >= job.max_attempts)) as over
        from dibs.job
        where job.queue = claim_newest.queue and job.unmet = 0 and job.priority = lane and job.run_at <= moment
            and (job.locked_until is null or job.locked_until <= moment)
            and (tasks is null or job.task = any (tasks))
        order by job.run_at desc, job.id desc
        limit wanted for update skip locked
    ), fallen as materialized (
        -- Steps whose end will stop their flow: those behind them are not to be claimed before that.
        select due.flow, due.run_at, due.id from due where due.over and due.flow is not null and dibs.stops(due.flow)
    ), noted as (
        insert into dibs.taken (jobs) select array_agg(due.id) from due having count(*) > 0
    ), taken as (
        update dibs.job set
            worker = claim_newest.worker, locked_until = moment + lease, started_at = moment, outcome = null,
            epoch = job.epoch + 1, attempts = job.attempts + 1,
            errors = case when job.locked_until is null then job.errors else dibs.with_error(
                job.errors, job.attempts, job.epoch, job.worker, job.started_at, moment, 'lease expired', ''
            ) end
        from due
        where job.ctid = due.spot and not due.over
            and (due.flow is null or not exists (
                select from fallen
                where fallen.flow = due.flow and (fallen.run_at, fallen.id) > (due.run_at, due.id)
            ))
        returning
            job.id, job.epoch, job.task, job.args, job.priority, job.run_at, job.created_at, job.attempts,
            job.max_attempts, job.locked_until, job.key, job.flow, job.step, job.meta, job.inputs
    )
    select * from taken order by taken.run_at desc, taken.id desc
$$;
