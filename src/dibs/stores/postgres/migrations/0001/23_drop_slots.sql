-- Drops the slots that no longer count from these limits (one array per property), locked by the caller. A lease that has
-- ended counts no more, but its job is touched first: a heartbeat that is just renewing it must find that it came late.
-- Whoever is at a job right now still counts.
create function dibs.drop_slots(kinds text[], names text[], keys text[], moment timestamptz) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    void tid[];
    late uuid[];
    late_at tid[];
begin
    select
        array_agg(held.spot) filter (where job.id is null), array_agg(job.id) filter (where job.locked_until <= moment),
        array_agg(held.spot) filter (where job.locked_until <= moment)
    into void, late, late_at
    from unnest(kinds, names, keys) as item (kind, name, key)
    cross join lateral (
        select slot.ctid as spot, slot.job, slot.epoch from dibs.slot
        where slot.kind = item.kind and slot.name = item.name and slot.key = item.key offset 0
    ) as held
    left join dibs.job on job.id = any (array[held.job]) and job.epoch = held.epoch and job.locked_until is not null;
    if late is not null then
        with free as materialized (
            select job.id from dibs.job where job.id = any (late) and job.locked_until <= moment
            for update skip locked
        ), touched as (
            update dibs.job set locked_until = job.locked_until from free where job.id = any (array[free.id])
            returning job.id
        )
        select void || array_agg(item.spot) into void
        from unnest(late, late_at) as item (id, spot) join touched on touched.id = item.id;
    end if;
    with gone as (
        delete from dibs.slot where slot.ctid = any (void)
        returning slot.kind, slot.name, slot.key
    )
    update dibs.bucket set slots = bucket.slots - counted.many
    from (select kind, name, key, count(*)::integer as many from gone group by kind, name, key) as counted
    cross join lateral (
        select known.ctid as spot from dibs.bucket as known
        where known.kind = counted.kind and known.name = counted.name and known.key = counted.key limit 1
    ) as found
    where bucket.ctid = found.spot;
end
$$;
