-- Judges candidates of a queue, one after another, by its limits and by those of their tasks: `chosen` are the ones that
-- every limit has room for, and the ones that are over, which need none, up to `wanted` of them. `limited` are the kinds of
-- limits that the queue has, `limited_tasks` the tasks that have one. `rooms` is what was left by candidates before these,
-- and becomes what is left by them. `passed`: there was one that is not chosen because of a limit. For `may_wait` see dibs.lock_scopes.
create function dibs.admit(
    queue text, candidates dibs.candidate[], wanted integer, limited text[], limited_tasks text[],
    inout rooms dibs.room[], may_wait boolean, out chosen uuid[], out passed boolean
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_hashjoin = on
as $$
#variable_conflict use_column
declare
    kinds text[]; keys text[]; asked integer[];
    -- What is left of each room; the first is that of candidates that come under no such limit.
    free integer[];
    -- Which room the queue, the key, the task of each candidate has.
    by_queue integer; by_key integer[]; by_task integer[];
    one dibs.candidate;
    nth integer := 0;
begin
    select array_agg(demand.kind), array_agg(demand.key), array_agg(demand.many) into kinds, keys, asked
    from (
        select 'queue' as kind, '' as key, count(*)::integer as many
        from unnest(candidates) as each where not each.over having 'queue' = any (limited)
        union all
        select 'key', each.limit_key, count(*)::integer from unnest(candidates) as each
        where 'key' = any (limited) and each.limit_key is not null and not each.over group by each.limit_key
        union all
        select 'task', each.task, count(*)::integer from unnest(candidates) as each
        where each.task = any (limited_tasks) and not each.over group by each.task
    ) as demand;
    rooms := dibs.make_room(queue, kinds, keys, asked, rooms, may_wait);

    free := 2147483647 || array(select room.places - room.used from unnest(rooms) as room);
    by_queue := 1 + coalesce(array_position(array(select room.kind from unnest(rooms) as room), 'queue'), 0);
    select
        array_agg(1 + coalesce(of_key.at, 0) order by each.at), array_agg(1 + coalesce(of_task.at, 0) order by each.at)
    into by_key, by_task
    from unnest(candidates) with ordinality as each (id, priority, run_at, task, limit_key, over, at)
    left join unnest(rooms) with ordinality as of_key (kind, key, places, used, sure, at)
        on of_key.kind = 'key' and of_key.key = each.limit_key
    left join unnest(rooms) with ordinality as of_task (kind, key, places, used, sure, at)
        on of_task.kind = 'task' and of_task.key = each.task;
    chosen := '{}';
    passed := false;
    foreach one in array candidates loop
        nth := nth + 1;
        if not one.over then
            if free[by_queue] = 0 or free[by_key[nth]] = 0 or free[by_task[nth]] = 0 then
                passed := true;
                continue;
            end if;
            free[by_queue] := free[by_queue] - 1;
            free[by_key[nth]] := free[by_key[nth]] - 1;
            free[by_task[nth]] := free[by_task[nth]] - 1;
        end if;
        chosen := chosen || one.id;
        exit when cardinality(chosen) = wanted;
    end loop;
    rooms := array(
        select row(room.kind, room.key, room.places, room.places - free[1 + room.at], room.sure)::dibs.room
        from unnest(rooms) with ordinality as room (kind, key, places, used, sure, at)
    );
end
$$;
