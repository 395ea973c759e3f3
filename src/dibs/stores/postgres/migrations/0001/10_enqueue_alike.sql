-- Stores jobs of which each has an id and arguments of its own and all else in common, that are due now and have none of what
-- most jobs leave out, in two thirds of the time of dibs.enqueue_arrays. False, and nothing has changed, unless it
-- can be seen at a glance that there is no more to it: see dibs.enqueue_plain.
create function dibs.enqueue_alike(
    ids uuid[], queue text, task text, args json[], priority smallint default 0, max_attempts smallint default 5,
    meta json default '{}', wake boolean default true
) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    moment constant timestamptz := dibs.clock();
    -- What a name must not hold, and a space.
    odd constant text := '[\u0001-\u0020\u007f-\u009f\u2028\u2029]';
    stored uuid[];
    lowest uuid;
    highest uuid;
begin
    if length(queue) between 1 and 200 and queue !~ odd and length(task) between 1 and 200 and task !~ odd
        and max_attempts between 1 and 1000
    then
        with added as (
            insert into dibs.job (id, queue, task, args, priority, run_at, created_at, max_attempts, meta)
            select item.id, queue, task, item.args, priority, moment, moment, max_attempts, meta
            from unnest(ids, args) as item (id, args)
            order by item.id
            on conflict do nothing
            returning job.id
        )
        select array_agg(added.id order by added.id) into stored from added;
        lowest := stored[1];
        highest := stored[cardinality(stored)];
        -- One that is known as finished is looked up after the insert, so that a settle between the two is seen. Ids of one
        -- producer lie close together: as a rule none between the first and the last of them is, and one look will do.
        if cardinality(stored) = cardinality(ids) and not (
            exists (select from dibs.finished where finished.id between lowest and highest)
            and exists (
                select from unnest(ids) as item (id)
                cross join lateral (select from dibs.finished where finished.id = item.id limit 1) as finished
            )
        ) then
            if wake then
                perform pg_notify('dibs', queue);
            end if;
            return true;
        end if;
        delete from dibs.job where job.id = any (stored);
    end if;
    return false;
end
$$;
