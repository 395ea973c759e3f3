-- Stores jobs, all or none. Inputs: one array per property, all of one length; in run_ats null means now.
-- Returns, in the order given, the job that stands for each: a new one, or the one whose id or key is there already.
create function dibs.enqueue_arrays(
    ids uuid[], queues text[], tasks text[], args json[], priorities smallint[], run_ats timestamptz[],
    max_attempts smallint[], keys text[], metas json[], wake boolean default true
) returns table (id uuid, created boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    fresh uuid[] := '{}';
    finished_before uuid[] := '{}';
    stored uuid[];
    known uuid[];
    due text[];
begin
    perform dibs.check_names('queue', queues);
    perform dibs.check_names('task', tasks);
    perform dibs.check_names('key', array_remove(keys, null));
    if exists (select from unnest(max_attempts) as most where most not between 1 and 1000) then
        raise 'max_attempts must be from 1 to 1000' using errcode = 'check_violation';
    end if;
    perform dibs.check_times(run_ats);
    loop
        -- Two calls with the same keys take them in the same order, so they cannot deadlock.
        with item as (
            select * from unnest(ids, queues, tasks, args, priorities, run_ats, max_attempts, keys, metas)
            with ordinality as item
                (id, queue, task, args, priority, run_at, max_attempts, key, meta, place)
        ), added as (
            insert into dibs.job
                (id, queue, task, args, priority, run_at, created_at, max_attempts, key, meta)
            select
                item.id, item.queue, item.task, item.args, item.priority, coalesce(item.run_at, moment), moment,
                item.max_attempts, item.key, item.meta
            from item
            where finished_before = '{}' or item.id <> all (finished_before)
            order by item.queue, item.key nulls first, case when item.key is null then item.id end, item.place
            on conflict do nothing
            returning job.id, job.queue, job.run_at
        )
        select array_agg(added.id), due || array_agg(distinct added.queue) filter (where added.run_at <= moment)
        into stored, due
        from added;

        -- An id that is known as finished: looked up after the insert, so that a settle between the two is seen.
        select array_agg(finished.id) into known
        from unnest(stored) as added (id) join dibs.finished on finished.id = any (array[added.id]);
        if known is null then
            fresh := fresh || stored;
        else
            delete from dibs.job where job.id = any (known);
            fresh := fresh || array(select unnest(stored) except select unnest(known));
            finished_before := finished_before || known;
        end if;

        if cardinality(fresh) = cardinality(ids) then
            return query select added.id, true from unnest(ids) as added (id);
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
