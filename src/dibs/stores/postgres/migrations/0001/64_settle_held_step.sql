-- Settles a step for the holder of a valid lease: one row with how the step and its flow stand then, else none.
create function dibs.settle_held_step(
    step uuid, worker text, epoch integer, outcome text, result json default null, error text default null,
    traceback text default '', delay interval default '0', steps json default null
) returns table (id uuid, state text, flow uuid, flow_state text)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    held constant integer := dibs.held_step(settle_held_step.step, worker, epoch);
begin
    if held is not null and exists (select from dibs.jobs where jobs.id = settle_held_step.step and jobs.flow is not null)
        and dibs.settle_one(
            settle_held_step.step, held, worker, outcome, result, error, traceback, delay, steps
        ) = 'accepted' then
        return query
        select jobs.id, jobs.state, jobs.flow, flow.state
        from dibs.jobs join dibs.flow on flow.id = jobs.flow where jobs.id = settle_held_step.step;
    end if;
end
$$;
