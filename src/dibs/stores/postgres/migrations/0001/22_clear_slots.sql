-- Takes slots away: `spots` are their rows, `places` where each stands in the arrays of its row. What else a row has stays.
create function dibs.clear_slots(spots tid[], places bigint[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
    with gone as materialized (
        select item.spot, array_agg(item.nth) as nths from unnest(spots, places) as item (spot, nth) group by item.spot
    ), cleared as (
        delete from dibs.slot using gone where slot.ctid = gone.spot
        returning gone.spot, gone.nths, slot.kind, slot.name, slot.part, slot.keys, slot.jobs, slot.epochs
    ), each as materialized (
        select cleared.spot, cleared.kind, cleared.name, cleared.part, one.key, one.job, one.epoch,
            one.nth = any (cleared.nths) as void
        from cleared
        cross join lateral unnest(cleared.keys, cleared.jobs, cleared.epochs) with ordinality as one (key, job, epoch, nth)
    ), kept as (
        insert into dibs.slot (kind, name, part, keys, jobs, epochs)
        select each.kind, each.name, each.part, case when each.kind = 'key' then array_agg(each.key) end,
            array_agg(each.job), array_agg(each.epoch)
        from each where not each.void group by each.spot, each.kind, each.name, each.part
    )
    update dibs.bucket set slots = bucket.slots - counted.many
    from (
        select each.kind, each.name, coalesce(each.key, '') as key, count(*)::integer as many
        from each where each.void group by 1, 2, 3
    ) as counted
    cross join lateral (
        select known.ctid as spot from dibs.bucket as known
        where known.kind = counted.kind and known.name = counted.name and known.key = counted.key limit 1
    ) as found
    where bucket.ctid = found.spot;
end
$$;
