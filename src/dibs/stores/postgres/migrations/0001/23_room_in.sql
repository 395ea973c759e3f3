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
declare
    names constant text[] := array(
        select case when kind = 'task' then key else queue end
        from unnest(kinds, keys) with ordinality as item (kind, key, place) order by place
    );
    own constant text[] := array(
        select case when kind = 'key' then key else '' end
        from unnest(kinds, keys) with ordinality as item (kind, key, place) order by place
    );
begin
    if counted then
        perform dibs.drop_slots(kinds, names, own, moment);
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
    from unnest(kinds, names, own, keys) as item (kind, name, own, key)
    join dibs.scope on scope.kind = item.kind and scope.name = item.name
    left join dibs.bucket on bucket.kind = item.kind and bucket.name = item.name and bucket.key = item.own;
end
$$;
