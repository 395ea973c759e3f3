-- The part of dibs.settle for claims that send their job back to queued: that of steps, or that of other jobs.
create function dibs.put_back(
    ids uuid[], epochs integer[], workers text[], outcomes text[], errors text[], tracebacks text[],
    delays interval[], moment timestamptz, of_steps boolean
) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    due text[];
begin
    with item as materialized (
        select * from unnest(ids, epochs, workers, outcomes, errors, tracebacks, delays)
            as item (id, epoch, worker, outcome, error, traceback, delay)
        where item.outcome in ('retry', 'released', 'snoozed')
        order by item.id
    ), back as (
        update dibs.job set
            locked_until = null,
            outcome = item.outcome,
            attempts = job.attempts - (item.outcome <> 'retry')::integer,
            run_at = case when item.outcome = 'released' then job.run_at
                else moment + coalesce(item.delay, interval '0') end,
            errors = case when item.outcome <> 'retry' then job.errors else dibs.with_error(
                job.errors, job.attempts, job.epoch, job.worker, job.started_at, moment,
                coalesce(item.error, 'no error was given'), coalesce(item.traceback, '')
            ) end
        from item
        where job.id = any (array[item.id]) and job.epoch = item.epoch and job.worker = item.worker and job.locked_until > moment
            and (job.flow is not null) = of_steps
        returning job.queue, job.run_at
    )
    select array_agg(distinct back.queue) filter (where back.run_at <= moment) into due from back;
    if due is not null then
        perform dibs.wake(due);
    end if;
end
$$;
