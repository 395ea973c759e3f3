-- The step succeeded: releases those that waited for it, and finishes its flow with the last one. Only for the holder of
-- a valid lease, else no row. `steps` are added to the flow, see dibs.add_steps. With the `epoch` that the claim gave,
-- a worker that claimed the step twice cannot take one claim for the other, and a call that is sent again, because its
-- answer got lost, is answered again.
create function dibs.complete_step(
    step uuid, worker text, result json default null, epoch integer default null, steps json default null
) returns table (id uuid, state text, flow uuid, flow_state text)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
    select * from dibs.settle_held_step(
        complete_step.step, worker, epoch, 'succeeded', result => complete_step.result, steps => complete_step.steps
    )
$$;
