-- The part of dibs.settle for claims of steps, and for those that add steps: one after another, but all at once in flows
-- of which this call has successes only. Returns the places of those that were accepted one by one.
create function dibs.settle_steps(
    ids uuid[], epochs integer[], workers text[], outcomes text[], results json[], errors text[], tracebacks text[],
    delays interval[], steps json[], moment timestamptz
) returns integer[]
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    -- Flows that this call may stop; places of claims to be settled together; of those to be settled one by one.
    shaky uuid[];
    easy integer[];
    others integer[];
    place integer;
    accepted integer[] := '{}';
begin
    perform dibs.lock_flows(ids);
    with item as (
        select
            item.*, job.flow, item.outcome = 'succeeded' and item.steps is null as easy,
            item.outcome in ('failed', 'cancelled') or item.steps is not null or job.cancel_asked
                or (item.outcome = 'retry' and job.attempts >= job.max_attempts) as shaky
        from unnest(ids, outcomes, steps) with ordinality as item (id, outcome, steps, place)
        join dibs.job on job.id = any (array[item.id])
        where job.flow is not null or item.steps is not null
    ), judged as (
        select item.*, item.flow is not null and bool_and(item.easy) over (partition by item.flow) as together from item
    )
    select
        array_agg(judged.place) filter (where judged.together),
        array_agg(judged.place order by judged.place) filter (where not judged.together),
        array_agg(distinct judged.flow) filter (where judged.shaky and not judged.easy)
    into easy, others, shaky
    from judged;
    if others is not null then
        perform dibs.lock_steps(ids, shaky);
    end if;
    if easy is not null then
        perform dibs.succeed_steps(
            array_agg(ids[each]), array_agg(epochs[each]), array_agg(workers[each]), array_agg(results[each]), moment
        )
        from unnest(easy) as each;
    end if;
    foreach place in array coalesce(others, '{}') loop
        if dibs.settle_step(
            ids[place], epochs[place], workers[place], outcomes[place], results[place], errors[place],
            tracebacks[place], delays[place], steps[place], moment
        ) then
            accepted := accepted || place;
        end if;
    end loop;
    return accepted;
end
$$;
