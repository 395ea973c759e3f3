-- Takes room for these jobs (one array per property, `epochs` being those before the claim) under the limits of a queue, and of
-- tasks, if all of them surely have room for all: otherwise nothing is taken, and it answers false. The limits of the tasks
-- are locked, those of the queue were by the caller; see dibs.lock_scopes.
create function dibs.take_room(
    queue text, ids uuid[], epochs integer[], tasks text[], keys text[], limited text[], limited_tasks text[],
    moment timestamptz, may_wait boolean
) returns boolean
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    kinds text[]; names text[]; asked integer[]; tried text[];
    own dibs.scope;
    enough boolean;
    spots tid[]; used_kinds text[]; used_names text[]; used_keys text[]; more integer[]; later interval[];
begin
    select array_agg(demand.kind), array_agg(demand.key), array_agg(demand.many) into kinds, names, asked
    from (
        select 'queue' as kind, '' as key, cardinality(tasks) as many where 'queue' = any (limited)
        union all
        select 'key', item.key, count(*)::integer from unnest(keys) as item (key)
        where 'key' = any (limited) and item.key is not null group by item.key
        union all
        select 'task', item.task, count(*)::integer from unnest(tasks) as item (task)
        where limited_tasks <> '{}' and item.task = any (limited_tasks) group by item.task
    ) as demand;
    if kinds is null then
        return true;
    end if;
    if 'task' = any (kinds) then
        tried := array(select item.key from unnest(kinds, names) as item (kind, key) where item.kind = 'task');
        if (select count(*) from dibs.lock_scopes(queue, tried, may_wait) as locked where locked.kind = 'task')
            < cardinality(tried) then
            return false;
        end if;
    end if;
    select
        bool_and(room.places >= room.many) and count(*) = cardinality(kinds),
        array_agg(room.spot), array_agg(room.kind), array_agg(room.name),
        array_agg(case when room.kind = 'key' then room.key else '' end),
        array_agg(case when room.concurrency is null then 0 else room.many end), array_agg(room.many * room.apart)
    into enough, spots, used_kinds, used_names, used_keys, more, later
    from dibs.buckets_of(queue, kinds, names, asked, moment) as room;
    if not coalesce(enough, false) then
        return false;
    end if;
    -- Nobody else changes them while their limit is locked, so they are where they were found.
    update dibs.bucket set slots = bucket.slots + item.more, full_at = greatest(bucket.full_at, moment) + item.later
    from unnest(spots, more, later) as item (spot, more, later)
    where bucket.ctid = item.spot;
    if array_position(spots, null) is not null then
        insert into dibs.bucket (kind, name, key, slots, full_at)
        select item.kind, item.name, item.key, item.more, moment + item.later
        from unnest(spots, used_kinds, used_names, used_keys, more, later) as item (spot, kind, name, key, more, later)
        where item.spot is null;
    end if;
    for own in
        select scope.* from dibs.scope
        where scope.concurrency is not null and ((scope.kind in ('key', 'queue') and scope.name = take_room.queue)
            or (scope.kind = 'task' and scope.name = any (tried)))
    loop
        perform dibs.add_slots(own, ids, epochs, tasks, keys);
    end loop;
    return true;
end
$$;
