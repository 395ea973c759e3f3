-- Every flow, with its steps counted by state.
create view dibs.flows as
select
    flow.id, flow.name, flow.state, flow.on_failure, flow.created_at, flow.finished_at, counted.steps, flow.meta
from dibs.flow cross join lateral (
    select json_build_object(
        'waiting', count(*) filter (where step.state = 'waiting'),
        'queued', count(*) filter (where step.state = 'queued'),
        'running', count(*) filter (where step.state = 'running'),
        'succeeded', count(*) filter (where step.state = 'succeeded'),
        'failed', count(*) filter (where step.state = 'failed'),
        'cancelled', count(*) filter (where step.state = 'cancelled')
    ) as steps
    from dibs.jobs as step where step.flow = flow.id
) as counted;
