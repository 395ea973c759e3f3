-- Whether the limits of a queue, and of tasks, surely have room for all of these jobs (arrays of their tasks and limit
-- keys). The limits of the tasks are locked, those of the queue were by the caller; see dibs.lock_scopes.
create function dibs.fits(
    queue text, job_tasks text[], job_keys text[], limited text[], limited_tasks text[], may_wait boolean
) returns boolean
language plpgsql volatile
set enable_hashjoin = on
as $$
#variable_conflict use_column
declare
    kinds text[]; keys text[]; asked integer[]; tried text[];
begin
    select array_agg(demand.kind), array_agg(demand.key), array_agg(demand.many) into kinds, keys, asked
    from (
        select 'queue' as kind, '' as key, cardinality(job_tasks) as many where 'queue' = any (limited)
        union all
        select 'key', item.key, count(*)::integer from unnest(job_keys) as item (key)
        where 'key' = any (limited) and item.key is not null group by item.key
        union all
        select 'task', item.task, count(*)::integer from unnest(job_tasks) as item (task)
        where limited_tasks <> '{}' and item.task = any (limited_tasks) group by item.task
    ) as demand;
    if 'task' = any (kinds) then
        tried := array(select item.key from unnest(kinds, keys) as item (kind, key) where item.kind = 'task');
        if (select count(*) from dibs.lock_scopes(queue, tried, may_wait) as own where own.kind = 'task')
            < cardinality(tried) then
            return false;
        end if;
    end if;
    return kinds is null or not exists (
        select from unnest(kinds, keys, asked) as item (kind, key, many)
        left join dibs.room_in(queue, kinds, keys, dibs.clock(), false) as room
            on room.kind = item.kind and room.key = item.key
        where coalesce(room.places, 0) < item.many
    );
end
$$;
