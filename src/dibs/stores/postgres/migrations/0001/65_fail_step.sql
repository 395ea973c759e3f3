-- The attempt failed: the step runs again after `delay`, or, with no attempts left or if this is `final`, has failed, and
-- its flow with it. Only for the holder of a valid lease, else no row. For `epoch` see dibs.complete_step.
create function dibs.fail_step(
    step uuid, worker text, error text, delay interval default '0', final boolean default false,
    traceback text default '', epoch integer default null
) returns table (id uuid, state text, flow uuid, flow_state text)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
    select * from dibs.settle_held_step(
        fail_step.step, worker, epoch, case when final then 'failed' else 'retry' end, error => fail_step.error,
        traceback => fail_step.traceback, delay => fail_step.delay
    )
$$;
