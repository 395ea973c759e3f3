-- For each job of an enqueue call, in order, the job that stands for it: itself if it is among the fresh ones, one
-- that has its id, the unfinished one that has its key, or one whose time to be unique is not over. Returns nothing at all if one of them has gone meanwhile:
-- then its key is free, and the insert is to be tried again.
create function dibs.stand_ins(ids uuid[], queues text[], keys text[], fresh uuid[], moment timestamptz)
returns table (id uuid, created boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    stand_ins uuid[];
    news boolean[];
begin
    with item as (
        select *, row_number() over (partition by item.id order by item.place) as nth
        from unnest(ids, queues, keys) with ordinality as item (id, queue, key, place)
    ), resolved as (
        select
            item.place,
            item.nth = 1 and added.id is not null as created,
            coalesce(
                (select job.id from dibs.job where job.id = item.id),
                (select finished.id from dibs.finished where finished.id = item.id),
                (select job.id from dibs.job where job.queue = item.queue and job.key = item.key),
                case when item.key is not null then dibs.window_holder(item.queue, item.key, moment) end
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
