-- Writes down, for the limits that they come under, which jobs of a queue have just been claimed: one array per property,
-- `epochs` being those before the claim. The limits are locked by the caller.
create function dibs.note_starts(
    queue text, ids uuid[], epochs integer[], tasks text[], keys text[], moment timestamptz
) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_hashjoin = off
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    own dibs.scope;
    used_keys text[];
    used integer[];
    known integer;
begin
    for own in
        select scope.* from dibs.scope
        where (scope.kind in ('key', 'queue') and scope.name = note_starts.queue)
            or (scope.kind = 'task' and scope.name = any (tasks))
    loop
        if own.concurrency is not null then
            perform dibs.add_slots(own, ids, epochs, tasks, keys);
        end if;
        select array_agg(counted.key), array_agg(counted.many) into used_keys, used
        from (
            select case when own.kind = 'key' then item.key else '' end as key, count(*)::integer as many
            from unnest(tasks, keys) as item (task, key)
            where case own.kind when 'task' then item.task = own.name when 'key' then item.key is not null else true end
            group by 1
        ) as counted;
        update dibs.bucket set
            slots = bucket.slots + case when own.concurrency is not null then counted.many else 0 end,
            full_at = greatest(bucket.full_at, moment) + counted.many * own.apart
        from unnest(used_keys, used) as counted (key, many) cross join lateral (
            -- Written so that each is looked up, however few there were when the plan was made.
            select known.ctid as spot from dibs.bucket as known
            where known.kind = own.kind and known.name = own.name and known.key = counted.key limit 1
        ) as found
        where bucket.ctid = found.spot;
        get diagnostics known = row_count;
        if known < cardinality(used_keys) then
            insert into dibs.bucket (kind, name, key, slots, full_at)
            select
                own.kind, own.name, counted.key, case when own.concurrency is not null then counted.many else 0 end,
                moment + counted.many * own.apart
            from unnest(used_keys, used) as counted (key, many)
            on conflict (kind, name, key) do nothing;
        end if;
    end loop;
end
$$;
