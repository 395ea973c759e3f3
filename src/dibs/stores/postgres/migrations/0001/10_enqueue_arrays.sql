-- Stores jobs, all or none. Inputs: one array per property, all of one length; in run_ats null means now. The last five
-- arrays hold what most jobs leave out; null if all do.
-- Returns, in the order given, the job that stands for each: a new one, or the one whose id or key is there already, and
-- whether that one was changed.
create function dibs.enqueue_arrays(
    ids uuid[], queues text[], tasks text[], args json[], priorities smallint[], run_ats timestamptz[],
    max_attempts smallint[], keys text[], metas json[], wake boolean default true,
    expiries timestamptz[] default null, limit_keys text[] default null, unique_fors interval[] default null,
    on_conflicts text[] default null, max_delays interval[] default null
) returns table (id uuid, created boolean, changed boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    fresh uuid[] := '{}';
    -- For each job, the one that keeps its key busy beyond its own end.
    holders uuid[];
    -- Those whose id is known as finished.
    barred uuid[] := '{}';
    named constant text[] := array_remove(keys, null);
    stored uuid[];
    known uuid[];
    due text[];
begin
    perform dibs.check_names('queue', queues);
    perform dibs.check_names('task', tasks);
    perform dibs.check_names('key', named);
    if exists (select from unnest(max_attempts) as most where most not between 1 and 1000) then
        raise 'max_attempts must be from 1 to 1000' using errcode = 'check_violation';
    end if;
    perform dibs.check_times(run_ats);
    if num_nonnulls(expiries, limit_keys, unique_fors, on_conflicts, max_delays) > 0 then
        perform dibs.check_extras(run_ats, expiries, limit_keys, keys, unique_fors, on_conflicts, max_delays);
        if on_conflicts && array['replace', 'debounce'] then
            return query select * from dibs.enqueue_or_change(
                ids, queues, tasks, args, priorities, run_ats, max_attempts, keys, metas, wake, expiries, limit_keys,
                unique_fors, on_conflicts, max_delays
            );
            return;
        end if;
    end if;
    loop
        if named <> '{}' then
            holders := dibs.window_holders(ids, queues, keys, moment);
        end if;
        -- Two calls with the same keys take them in the same order, so they cannot deadlock.
        with item as (
            select * from unnest(
                ids, queues, tasks, args, priorities, run_ats, max_attempts, keys, metas, expiries, limit_keys, unique_fors,
                holders
            ) with ordinality as item (
                id, queue, task, args, priority, run_at, max_attempts, key, meta, expires_at, limit_key, unique_for,
                holder, place
            )
        ), added as (
            insert into dibs.job (
                id, queue, task, args, priority, run_at, created_at, max_attempts, key, meta, expires_at, limit_key,
                unique_until
            )
            select
                item.id, item.queue, item.task, item.args, item.priority, coalesce(item.run_at, moment), moment,
                item.max_attempts, item.key, item.meta, item.expires_at, item.limit_key,
                moment + dibs.exactly(item.unique_for)
            from item
            where item.holder is null and item.id <> all (barred)
            order by item.queue, item.key nulls first, case when item.key is null then item.id end, item.place
            on conflict do nothing
            returning job.id, job.queue, job.run_at
        )
        select array_agg(added.id), due || array_agg(distinct added.queue) filter (where added.run_at <= moment)
        into stored, due
        from added;

        -- An id that is known as finished: looked up after the insert, so that a settle between the two is seen. One by
        -- one: a plan that was made while few were finished would go through all of them for each.
        select array_agg(finished.id) into known
        from unnest(stored) as added (id)
        cross join lateral (select finished.id from dibs.finished where finished.id = added.id limit 1) as finished;
        if known is not null then
            delete from dibs.job where job.id = any (known);
            stored := array(select unnest(stored) except select unnest(known));
            barred := barred || known;
        end if;
        if named <> '{}' and stored <> '{}' then
            -- Likewise for a key whose job has come and finished since it was looked up.
            holders := dibs.window_holders(ids, queues, keys, moment);
            known := array(
                select item.id from unnest(ids, holders) as item (id, holder)
                where item.holder is not null and item.id = any (stored)
            );
            if known <> '{}' then
                delete from dibs.job where job.id = any (known);
                stored := array(select unnest(stored) except select unnest(known));
            end if;
        end if;
        fresh := fresh || stored;

        if cardinality(fresh) = cardinality(ids) then
            return query select added.id, true, false from unnest(ids) as added (id);
            exit;
        end if;
        return query select *, false from dibs.stand_ins(ids, queues, keys, holders, fresh);
        exit when found;
    end loop;
    if unique_fors is not null then
        insert into dibs.key_window (queue, key, job, until)
        select job.queue, job.key, job.id, job.unique_until
        from dibs.job where job.id = any (fresh) and job.unique_until is not null
        -- One that was deleted and comes again under its id.
        on conflict (queue, key, job) do update set until = excluded.until;
    end if;
    if wake and due is not null then
        perform dibs.wake(due);
    end if;
end
$$;
