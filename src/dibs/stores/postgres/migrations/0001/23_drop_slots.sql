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
    -- Which slots: the row, and the place in its arrays.
    void tid[]; void_nth bigint[];
    late tid[]; late_nth bigint[]; late_jobs uuid[];
    touched uuid[];
begin
    select
        array_agg(held.spot) filter (where job.id is null), array_agg(one.nth) filter (where job.id is null),
        array_agg(held.spot) filter (where job.locked_until <= moment),
        array_agg(one.nth) filter (where job.locked_until <= moment),
        array_agg(job.id) filter (where job.locked_until <= moment)
    into void, void_nth, late, late_nth, late_jobs
    from (
        select item.kind, item.name, dibs.part_of(item.key) as part, array_agg(item.key) as keys
        from unnest(kinds, names, keys) as item (kind, name, key) group by 1, 2, 3
    ) as asked
    cross join lateral (
        select slot.ctid as spot, slot.keys, slot.jobs, slot.epochs from dibs.slot
        where slot.kind = asked.kind and slot.name = asked.name and slot.part = asked.part offset 0
    ) as held
    cross join lateral unnest(held.keys, held.jobs, held.epochs) with ordinality as one (key, job, epoch, nth)
    left join dibs.job on job.id = any (array[one.job]) and job.epoch = one.epoch and job.locked_until is not null
    where one.key is null or one.key = any (asked.keys);
    if late is not null then
        with free as materialized (
            select job.id from dibs.job where job.id = any (late_jobs) and job.locked_until <= moment
            for update skip locked
        ), renewed as (
            update dibs.job set locked_until = job.locked_until from free where job.id = any (array[free.id])
            returning job.id
        )
        select array_agg(renewed.id) into touched from renewed;
        select void || array_agg(item.spot), void_nth || array_agg(item.nth) into void, void_nth
        from unnest(late, late_nth, late_jobs) as item (spot, nth, id) where item.id = any (touched);
    end if;
    if void is not null then
        perform dibs.clear_slots(void, void_nth);
    end if;
end
$$;
