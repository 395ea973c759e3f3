-- Adds steps to a flow, locked by the caller or new. `steps` is a JSON array of objects with the names that dibs.enqueue
-- takes, but no key, and `name` and `needs` (an array of names). They may need each other and, if a step adds them, that
-- one: `adder`. What dibs.limits would refuse is an error; what only the flow can tell is the problem that is returned,
-- and nothing is added then. Else `added` are their ids, and `due` the queues of those that are due.
create function dibs.add_steps(
    flow uuid, steps json, adder uuid, adder_name text, moment timestamptz, out problem text, out added uuid[],
    out due text[]
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    names text[]; queues text[]; tasks text[]; args json[]; priorities smallint[]; run_ats timestamptz[];
    max_attempts smallint[]; metas json[]; lists json[]; expiries timestamptz[]; limit_keys text[];
    -- The needs: name, place of the needed step (null: none of them), place of the needing one.
    needs text[]; needed integer[]; needing integer[]; nths integer[];
    keyed boolean;
begin
    select
        array_agg(step.name order by place), array_agg(coalesce(step.id, dibs.new_id(place::integer)) order by place),
        array_agg(coalesce(step.queue, 'default') order by place), array_agg(step.task order by place),
        array_agg(coalesce(step.args, '{}') order by place), array_agg(coalesce(step.priority, 0::smallint) order by place),
        array_agg(step.run_at order by place), array_agg(coalesce(step.max_attempts, 5::smallint) order by place),
        array_agg(coalesce(step.meta, '{}') order by place), array_agg(step.needs order by place),
        bool_or(step.key is not null or step.unique_for is not null or step.on_conflict <> 'existing'),
        array_agg(step.expires_at order by place), array_agg(step.limit_key order by place)
    into names, added, queues, tasks, args, priorities, run_ats, max_attempts, metas, lists, keyed, expiries, limit_keys
    from json_array_elements(steps) with ordinality as entry (step, place)
    cross join lateral json_to_record(entry.step) as step (
        name text, needs json, id uuid, queue text, task text, args json, priority smallint, run_at timestamptz,
        max_attempts smallint, meta json, key text, unique_for text, on_conflict text, expires_at timestamptz,
        limit_key text
    );
    select
        array_agg(need.name order by named.place, item.place, need.nth),
        array_agg(named.place::integer order by named.place, item.place, need.nth),
        array_agg(item.place::integer order by named.place, item.place, need.nth),
        array_agg(need.nth::integer order by named.place, item.place, need.nth)
    into needs, needed, needing, nths
    from unnest(lists) with ordinality as item (needs, place)
    cross join lateral json_array_elements_text(item.needs) with ordinality as need (name, nth)
    left join unnest(names) with ordinality as named (name, place) on named.name = need.name;
    if keyed then
        raise 'a step must have no key: its flow runs it once' using errcode = 'check_violation';
    end if;
    perform dibs.check_steps(names, added, queues, tasks, max_attempts, run_ats, needs, needed, needing);
    perform dibs.check_extras(run_ats, expiries, limit_keys);
    problem := dibs.misfit(flow, names, added, adder_name, needs, needed);
    if problem is not null then
        return;
    end if;

    with need as (
        select
            each.place, array_agg(each.name order by each.nth) as names,
            array_agg(coalesce(added[each.other], adder) order by each.nth) as ids
        from unnest(needs, needed, needing, nths) as each (name, other, place, nth) group by each.place
    ), stored as (
        insert into dibs.job (
            id, queue, task, args, priority, run_at, created_at, max_attempts, meta, flow, step, unmet, needs, need_ids,
            expires_at, limit_key
        )
        select
            item.id, item.queue, item.task, item.args, item.priority, coalesce(item.run_at, moment), moment,
            item.max_attempts, item.meta, add_steps.flow, item.name, coalesce(cardinality(need.names), 0),
            coalesce(need.names, '{}'), coalesce(need.ids, '{}'), item.expires_at, item.limit_key
        from unnest(
            names, added, queues, tasks, args, priorities, run_ats, max_attempts, metas, expiries, limit_keys
        ) with ordinality as item (
            name, id, queue, task, args, priority, run_at, max_attempts, meta, expires_at, limit_key, place
        )
        left join need on need.place = item.place
        order by item.id
        returning job.id, job.queue, job.run_at, job.unmet, job.need_ids
    ), linked as (
        insert into dibs.need (step, needs)
        select stored.id, needs.id from stored cross join lateral unnest(stored.need_ids) as needs (id)
    )
    select array_agg(distinct stored.queue) filter (where stored.unmet = 0 and stored.run_at <= moment)
    into due
    from stored;
end
$$;
