-- For each job of an enqueue call, in order, the job that stands for it: itself if it is among the fresh ones, one
-- that has its id, the unfinished one that has its key, or the one that keeps the key busy (`holders`, where there are keys).
-- Returns nothing at all if one of them has gone meanwhile: then its key is free, and the insert is to be tried again.
create function dibs.stand_ins(ids uuid[], queues text[], keys text[], holders uuid[], fresh uuid[])
returns table (id uuid, created boolean)
language plpgsql volatile
-- Whoever calls this forbids it: half of 10,000 jobs compared with the other half took 1.4 s.
set enable_hashjoin = on
as $$
#variable_conflict use_column
declare
    stand_ins uuid[];
    news boolean[];
begin
    with item as (
        select *, row_number() over (partition by item.id order by item.place) as nth
        from unnest(ids, queues, keys, holders) with ordinality as item (id, queue, key, holder, place)
    ), resolved as (
        select
            item.place,
            item.nth = 1 and added.id is not null as created,
            coalesce(
                (select job.id from dibs.job where job.id = item.id),
                (select finished.id from dibs.finished where finished.id = item.id),
                (select job.id from dibs.job where job.queue = item.queue and job.key = item.key),
                item.holder
            ) as id
        from item left join unnest(fresh) as added (id) on added.id = item.id
    )
    select array_agg(resolved.id order by resolved.place), array_agg(resolved.created order by resolved.place)
    into stand_ins, news
    from resolved;

    if array_position(stand_ins, null) is null then
        return query select * from unnest(stand_ins, news);
    end if;
end
$$;
