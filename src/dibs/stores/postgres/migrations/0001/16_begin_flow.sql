-- The work of dibs.start_flow. Returns whether the flow is new.
create function dibs.begin_flow(
    id uuid, name text, steps json, on_failure text, meta json, wake boolean
) returns boolean
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    problem text;
    due text[];
begin
    perform dibs.check_names('flow', array[begin_flow.name]);
    if coalesce(begin_flow.on_failure, '') not in ('stop', 'continue') then
        raise 'on_failure must be stop or continue, not %', quote_nullable(begin_flow.on_failure)
            using errcode = 'check_violation';
    end if;
    insert into dibs.flow (id, name, on_failure, created_at, meta)
    values (begin_flow.id, begin_flow.name, begin_flow.on_failure, moment, begin_flow.meta)
    on conflict do nothing;
    if not found then
        return false;
    end if;
    select new.problem, new.due into problem, due from dibs.add_steps(begin_flow.id, steps, null, null, moment) as new;
    if problem is not null then
        raise '%', problem using errcode = 'unique_violation';
    end if;
    if wake and due is not null then
        perform dibs.wake(due);
    end if;
    return true;
end
$$;
