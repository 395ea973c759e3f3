-- What is known of the room in limits, with those added that these candidates come under (`asked`: how many of them each),
-- and with those counted anew that may have less room than they are asked for. Limits that come up for the first time
-- are locked; without `may_wait` those that somebody else holds have no room.
create function dibs.make_room(
    queue text, kinds text[], keys text[], asked integer[], rooms dibs.room[], may_wait boolean
) returns dibs.room[]
language plpgsql volatile
set enable_hashjoin = on
as $$
#variable_conflict use_column
declare
    new_kinds text[]; new_keys text[];
    short_kinds text[]; short_keys text[];
    locked text[];
begin
    select array_agg(item.kind), array_agg(item.key) into new_kinds, new_keys
    from unnest(kinds, keys) as item (kind, key)
    left join unnest(rooms) as known on known.kind = item.kind and known.key = item.key
    where known.kind is null;
    if new_kinds is not null then
        locked := array(
            select own.kind || own.name
            from dibs.lock_scopes(
                queue, array(select key from unnest(new_kinds, new_keys) as item (kind, key) where kind = 'task'),
                make_room.may_wait
            ) as own
        );
        rooms := rooms || array(
            select row(item.kind, item.key, 0, 0, true)::dibs.room from unnest(new_kinds, new_keys) as item (kind, key)
            where item.kind || case item.kind when 'task' then item.key else queue end <> all (locked)
        ) || array(
            select found from dibs.room_in(queue, new_kinds, new_keys, dibs.clock(), false) as found
            where found.kind || case found.kind when 'task' then found.key else queue end = any (locked)
        );
    end if;
    select array_agg(known.kind), array_agg(known.key) into short_kinds, short_keys
    from unnest(kinds, keys, asked) as item (kind, key, many)
    join unnest(rooms) as known on known.kind = item.kind and known.key = item.key
    where known.places - known.used < item.many and not known.sure;
    if short_kinds is not null then
        rooms := array(
            select case when found.kind is null then known
                else row(known.kind, known.key, found.places, known.used, true)::dibs.room end
            from unnest(rooms) as known
            left join dibs.room_in(queue, short_kinds, short_keys, dibs.clock(), true) as found
                on found.kind = known.kind and found.key = known.key
        );
    end if;
    return rooms;
end
$$;
