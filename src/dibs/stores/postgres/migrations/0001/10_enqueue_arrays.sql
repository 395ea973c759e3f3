-- Stores jobs, all or none. Inputs: one array per property, all of one length; in run_ats null means now.
-- Returns, in the order given, the job that stands for each: a new one, or the one whose id or key is there already.
create function dibs.enqueue_arrays(
    ids uuid[], queues text[], tasks text[], args json[], priorities smallint[], run_ats timestamptz[],
    max_attempts smallint[], keys text[], metas json[], wake boolean default true
) returns table (id uuid, created boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    fresh uuid[];
    due text[];
    stale uuid[];
begin
    loop
        -- Two calls with the same keys take them in the same order, so they cannot deadlock.
        with item as (
            select * from unnest(ids, queues, tasks, args, priorities, run_ats, max_attempts, keys, metas)
            with ordinality as item
                (id, queue, task, args, priority, run_at, max_attempts, key, meta, place)
        ), stored as (
            insert into dibs.job
                (id, queue, task, args, priority, run_at, created_at, max_attempts, key, meta)
            select
                item.id, item.queue, item.task, item.args, item.priority, coalesce(item.run_at, moment), moment,
                item.max_attempts, item.key, item.meta
            from item
            where fresh is null or item.id <> all (fresh)
            order by item.queue, item.key nulls first, case when item.key is null then item.id end, item.place
            on conflict do nothing
            returning job.id, job.queue, job.run_at
        )
        select
            fresh || coalesce(array_agg(stored.id), '{}'),
            due || array_agg(distinct stored.queue) filter (where stored.run_at <= moment)
        into fresh, due
        from stored;

        -- An id that is known as finished: looked up after the insert, so that a settle between the two is seen.
        select array_agg(finished.id) into stale
        from unnest(fresh) as stored (id) join dibs.finished on finished.id = stored.id;
        if stale is not null then
            delete from dibs.job where job.id = any (stale);
            fresh := array(select unnest(fresh) except select unnest(stale));
        end if;

        if cardinality(fresh) = cardinality(ids) then
            return query select stored.id, true from unnest(ids) as stored (id);
            exit;
        end if;
        return query select * from dibs.stand_ins(ids, queues, keys, fresh);
        exit when found;
    end loop;
    if wake and due is not null then
        perform dibs.wake(due);
    end if;
end
$$;
