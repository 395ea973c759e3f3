-- The epoch of the claim that a worker holds on a step: the given one, or, without one, whichever it is now. Null if it
-- holds none. An epoch that is given is not looked at here: whoever settles looks at it, and knows a call sent twice.
create function dibs.held_step(step uuid, worker text, epoch integer) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
begin
    return coalesce(held_step.epoch, (
        select job.epoch from dibs.job
        where job.id = held_step.step and job.worker = held_step.worker and job.locked_until > moment
            and job.flow is not null
    ));
end
$$;
