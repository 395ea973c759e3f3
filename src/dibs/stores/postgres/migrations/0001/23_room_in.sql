-- How many more jobs these limits of a queue and of tasks let in, each for a key of its own where it is one of keys: the
-- rest of its concurrency, and of its rate. Their rows are locked by the caller. With `counted` none is taken for running
-- that is not.
create function dibs.room_in(
    queue text, kinds text[], keys text[], moment timestamptz, counted boolean
) returns setof dibs.room
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
begin
    if counted then
        perform dibs.drop_slots(
            array_agg(item.kind), array_agg(case when item.kind = 'task' then item.key else queue end),
            array_agg(case when item.kind = 'key' then item.key else '' end), moment
        )
        from unnest(kinds, keys) as item (kind, key);
    end if;
    return query
    select
        item.kind, item.key,
        greatest(0, least(
            scope.concurrency - coalesce(bucket.slots, 0),
            -- All that it can hold, but for what it has let in and not got back by now, in whole starts.
            case when scope.starts is not null then scope.starts - (
                (dibs.micros(greatest(coalesce(bucket.full_at - moment, '0'), '0')) + dibs.micros(scope.apart) - 1)
                / dibs.micros(scope.apart)
            )::integer end
        )),
        0, counted or scope.concurrency is null
    from unnest(kinds, keys) as item (kind, key)
    cross join lateral (
        select * from dibs.scope
        where scope.kind = item.kind and scope.name = case when item.kind = 'task' then item.key else queue end limit 1
    ) as scope
    left join lateral (
        select * from dibs.bucket
        where bucket.kind = item.kind and bucket.name = scope.name
            and bucket.key = case when item.kind = 'key' then item.key else '' end limit 1
    ) as bucket on true;
end
$$;
