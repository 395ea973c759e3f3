-- How many more jobs these limits of a queue and of tasks let in: see dibs.buckets_of. Their rows are locked by the caller.
-- With `counted` none is taken for running that is not.
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
    select room.kind, room.key, room.places, 0, counted or room.concurrency is null
    from dibs.buckets_of(queue, kinds, keys, null, moment) as room;
end
$$;
