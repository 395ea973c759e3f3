-- What these limits of a queue and of tasks have room for, each for a key of its own where it is one of keys: the rest of
-- its concurrency, and of its rate. `many` is passed through. `spot`: where its row of dibs.bucket is, if it has one.
create function dibs.buckets_of(queue text, kinds text[], keys text[], asked integer[], moment timestamptz)
returns table (
    kind text, key text, many integer, places integer, spot tid, name text, concurrency integer, apart interval
)
language sql stable
as $$
-- Read once: there may be many keys, but there is one limit for all of them.
with own as materialized (
    select scope.* from dibs.scope
    where (scope.kind in ('key', 'queue') and scope.name = buckets_of.queue) or (
        scope.kind = 'task'
        and scope.name = any (array(select item.key from unnest(kinds, keys) as item (kind, key) where item.kind = 'task'))
    )
)
select
    item.kind, item.key, item.many,
    greatest(0, least(
        own.concurrency - coalesce(bucket.slots, 0),
        -- All that it can hold, but for what it has let in and not got back by now, in whole starts.
        case when own.starts is not null then own.starts - (
            (dibs.micros(greatest(coalesce(bucket.full_at - moment, '0'), '0')) + dibs.micros(own.apart) - 1)
            / dibs.micros(own.apart)
        )::integer end
    )),
    bucket.spot, own.name, own.concurrency, own.apart
from own
cross join lateral (
    select item.kind, item.key, item.many from unnest(kinds, keys, asked) as item (kind, key, many)
    where item.kind = own.kind and (item.kind <> 'task' or item.key = own.name) offset 0
) as item
-- Written so that each is looked up, however few there were when the plan was made.
left join lateral (
    select bucket.ctid as spot, bucket.slots, bucket.full_at from dibs.bucket
    where bucket.kind = own.kind and bucket.name = own.name
        and bucket.key = case when item.kind = 'key' then item.key else '' end limit 1
) as bucket on true
$$;
