-- The part of dibs.settle for one claim of a step, or one that adds steps. What it touches is locked by the caller.
-- Returns whether the claim was held.
create function dibs.settle_step(
    id uuid, epoch integer, worker text, outcome text, result json, error text, traceback text, delay interval,
    steps json, moment timestamptz
) returns boolean
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    own dibs.job;
    ends text;
    problem text;
begin
    select job.* into own from dibs.job
    where job.id = settle_step.id and job.epoch = settle_step.epoch and job.worker = settle_step.worker
        and job.locked_until > moment
    for update;
    if not found then
        return false;
    end if;
    if outcome = 'succeeded' and steps is not null then
        problem := dibs.extend_flow(own, steps, moment);
    end if;
    ends := case
        when problem is not null then 'failed'
        when outcome in ('succeeded', 'failed', 'cancelled') then outcome
        when own.cancel_asked then 'cancelled'
        when outcome = 'retry' and own.attempts >= own.max_attempts then 'failed'
    end;
    if ends is null then
        perform dibs.put_back(
            array[own.id], array[own.epoch], array[own.worker], array[outcome], array[error], array[traceback],
            array[delay], moment, of_steps => true
        );
        return true;
    end if;
    perform dibs.finish(
        array[own.id], moment, ends, as_outcome => outcome,
        as_result => case when ends = 'succeeded' then coalesce(result, 'null') end,
        error => coalesce(problem, case when outcome in ('retry', 'failed') then coalesce(error, 'no error was given') end),
        traceback => coalesce(traceback, '')
    );
    perform dibs.steps_ended(array[own.id], moment);
    return true;
end
$$;
