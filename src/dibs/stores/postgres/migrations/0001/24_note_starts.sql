-- Writes down, for the limits that they come under, which jobs of a queue have just been claimed: one array per property,
-- `epochs` being those before the claim. The limits are locked by the caller.
create function dibs.note_starts(
    queue text, ids uuid[], epochs integer[], tasks text[], keys text[], moment timestamptz
) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_hashjoin = on
as $$
#variable_conflict use_column
declare
    own dibs.scope;
begin
    for own in
        select scope.* from dibs.scope
        where (scope.kind in ('key', 'queue') and scope.name = note_starts.queue)
            or (scope.kind = 'task' and scope.name = any (tasks))
    loop
        with start as materialized (
            select case when own.kind = 'key' then item.key else '' end as key, item.id, item.epoch + 1 as epoch
            from unnest(ids, epochs, tasks, keys) as item (id, epoch, task, key)
            where case own.kind when 'task' then item.task = own.name when 'key' then item.key is not null else true end
        ), slotted as (
            insert into dibs.slot (kind, name, key, job, epoch)
            select own.kind, own.name, start.key, start.id, start.epoch
            from start where own.concurrency is not null
            on conflict (kind, name, key, job) do update set epoch = excluded.epoch
            -- A row that was there has been locked for the update.
            returning slot.key, slot.xmax = 0 as fresh
        )
        insert into dibs.bucket as known (kind, name, key, slots, full_at)
        select
            own.kind, own.name, counted.key, coalesce(fresh.many, 0), moment + counted.many * own.apart
        from (select start.key, count(*) as many from start group by start.key) as counted
        left join (
            select slotted.key, count(*) as many from slotted where slotted.fresh group by slotted.key
        ) as fresh on fresh.key = counted.key
        on conflict (kind, name, key) do update set
            slots = known.slots + excluded.slots,
            full_at = case when own.apart is not null
                then greatest(known.full_at, moment) + dibs.exactly(excluded.full_at - moment) end;
    end loop;
end
$$;
