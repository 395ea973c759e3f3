-- Begins to count what runs under a limit: those that run already have their slots. Without concurrency there are none.
create function dibs.fill_slots(wanted dibs.scope, moment timestamptz) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    delete from dibs.slot where slot.kind = wanted.kind and slot.name = wanted.name;
    update dibs.bucket set slots = 0 where bucket.kind = wanted.kind and bucket.name = wanted.name;
    if wanted.concurrency is null then
        return;
    end if;
    with running as materialized (
        select
            case when wanted.kind = 'key' then job.limit_key else '' end as key, job.id, job.epoch,
            row_number() over () as nth
        from dibs.job
        where job.id = any ((select dibs.maybe_running())::uuid[]) and job.locked_until > moment and case wanted.kind
            when 'task' then job.task = wanted.name
            when 'queue' then job.queue = wanted.name
            else job.queue = wanted.name and job.limit_key is not null
        end
    ), filled as (
        insert into dibs.slot (kind, name, part, keys, jobs, epochs)
        select
            wanted.kind, wanted.name, dibs.part_of(running.key),
            case when wanted.kind = 'key' then array_agg(running.key) end, array_agg(running.id), array_agg(running.epoch)
        from running group by 3, running.nth / 50
    )
    insert into dibs.bucket as known (kind, name, key, slots)
    select wanted.kind, wanted.name, running.key, count(*) from running group by running.key
    on conflict (kind, name, key) do update set slots = excluded.slots;
end
$$;
