-- Adds steps to the flow of the step that is about to succeed; see dibs.add_steps. A flow that was stopped stops them,
-- too; a step that was to be cancelled passes that on. Returns why they cannot be added, or null.
create function dibs.extend_flow(adder dibs.job, steps json, moment timestamptz) returns text
language plpgsql volatile
as $$
declare
    problem text;
    fresh uuid[];
    due text[];
    one uuid;
begin
    if adder.flow is null then
        return 'the steps cannot be added: this job is no step of a flow';
    end if;
    select new.problem, new.added, new.due into problem, fresh, due
    from dibs.add_steps(adder.flow, steps, adder.id, adder.step, moment) as new;
    if problem is not null then
        return problem;
    end if;
    if exists (select from dibs.flow where id = adder.flow and state <> 'running') then
        perform dibs.finish(fresh, moment, 'cancelled', asked => true);
    elsif adder.cancel_asked then
        foreach one in array fresh loop
            -- The end of one may have ended those behind it.
            if dibs.finish(array[one], moment, 'cancelled', asked => true) = 1 then
                perform dibs.steps_ended(array[one], moment);
            end if;
        end loop;
    elsif due is not null then
        perform dibs.wake(due);
    end if;
    return null;
end
$$;
