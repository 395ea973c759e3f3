-- Ends an expired step, locked by the caller, with all that follows from it. Returns 1, or 0 if it had to be left
-- alone: whoever holds row locks already must not wait for a flow, see docs/decisions/0004-postgres-layout.md.
create function dibs.end_expired_step(step uuid, moment timestamptz) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    own dibs.flow;
    touched integer;
    free integer;
begin
    select flow.* into own
    from dibs.job join dibs.flow on flow.id = job.flow
    where job.id = end_expired_step.step
    for update of flow skip locked;
    if not found then
        return 0;
    end if;
    if own.state = 'running' and own.on_failure = 'stop' then
        -- All of its unfinished steps will be changed.
        select count(*) into touched from dibs.job where job.flow = own.id;
        select count(*) into free from (select from dibs.job where job.flow = own.id for update skip locked) as locked;
        if free < touched then
            return 0;
        end if;
    end if;
    perform dibs.finish(array[step], moment, error => 'lease expired');
    perform dibs.steps_ended(array[step], moment);
    return 1;
end
$$;
