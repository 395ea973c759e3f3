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
    ended uuid[];
begin
    with late as materialized (
        select job.id
        from unnest(kinds, names, keys) as item (kind, name, key)
        join dibs.slot on slot.kind = item.kind and slot.name = item.name and slot.key = item.key
        join dibs.job on job.id = any (array[slot.job]) and job.epoch = slot.epoch and job.locked_until <= moment
        for update of job skip locked
    ), touched as (
        update dibs.job set locked_until = job.locked_until from late where job.id = any (array[late.id])
        returning job.id
    )
    select array_agg(touched.id) into ended from touched;
    with gone as (
        delete from dibs.slot using unnest(kinds, names, keys) as item (kind, name, key)
        where slot.kind = item.kind and slot.name = item.name and slot.key = item.key
            and (slot.job = any (ended) or not exists (
                select from dibs.job
                where job.id = slot.job and job.epoch = slot.epoch and job.locked_until is not null
            ))
        returning slot.kind, slot.name, slot.key
    )
    update dibs.bucket set slots = bucket.slots - counted.many
    from (select kind, name, key, count(*)::integer as many from gone group by kind, name, key) as counted
    where bucket.kind = counted.kind and bucket.name = counted.name and bucket.key = counted.key;
end
$$;
