-- Sends expired jobs, locked by the caller, back to queued, in their place.
create function dibs.recover(ids uuid[], moment timestamptz) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    due text[];
begin
    with back as (
        update dibs.job set
            locked_until = null,
            errors = dibs.with_error(
                job.errors, job.attempts, job.epoch, job.worker, job.started_at, moment, 'lease expired', ''
            )
        where job.id = any (ids) and job.locked_until is not null
        returning job.queue
    )
    select array_agg(distinct back.queue) into due from back;
    if due is not null then
        perform dibs.wake(due);
    end if;
end
$$;
