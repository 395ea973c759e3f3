-- Writes down, for the limits that they come under, which of these jobs have just been claimed. Those limits are locked by
-- the caller.
create function dibs.note_starts(ids uuid[], moment timestamptz) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_hashjoin = on
as $$
#variable_conflict use_column
begin
    with taken as (
        select job.id, job.epoch, job.queue, job.task, job.limit_key
        from unnest(ids) as item (id) join dibs.job on job.id = any (array[item.id])
        where job.started_at = moment and job.locked_until > moment
    ), start as materialized (
        select scope.kind, scope.name, limited.key, scope.concurrency, scope.apart, taken.id, taken.epoch
        from taken cross join lateral (
            values ('queue', taken.queue, ''), ('key', taken.queue, taken.limit_key), ('task', taken.task, '')
        ) as limited (kind, name, key)
        join dibs.scope on scope.kind = limited.kind and scope.name = limited.name
        where limited.key is not null
    ), slotted as (
        insert into dibs.slot (kind, name, key, job, epoch)
        select start.kind, start.name, start.key, start.id, start.epoch
        from start where start.concurrency is not null
        on conflict (kind, name, key, job) do update set epoch = excluded.epoch
        -- A row that was there has been locked for the update.
        returning slot.kind, slot.name, slot.key, (slot.xmax = 0)::integer as fresh
    )
    insert into dibs.bucket as known (kind, name, key, slots, full_at)
    select
        counted.kind, counted.name, counted.key,
        coalesce((
            select sum(slotted.fresh) from slotted
            where slotted.kind = counted.kind and slotted.name = counted.name and slotted.key = counted.key
        ), 0),
        moment + counted.owed
    from (
        select start.kind, start.name, start.key, count(*) * start.apart as owed
        from start group by start.kind, start.name, start.key, start.apart
    ) as counted
    on conflict (kind, name, key) do update set
        slots = known.slots + excluded.slots,
        full_at = greatest(known.full_at, moment) + dibs.exactly(excluded.full_at - moment);
end
$$;
