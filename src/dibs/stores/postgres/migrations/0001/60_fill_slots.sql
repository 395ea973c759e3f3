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
    with filled as (
        insert into dibs.slot (kind, name, key, job, epoch)
        select
            wanted.kind, wanted.name, case when wanted.kind = 'key' then job.limit_key else '' end, job.id, job.epoch
        from dibs.job
        where job.locked_until > moment and case wanted.kind
            when 'task' then job.task = wanted.name
            when 'queue' then job.queue = wanted.name
            else job.queue = wanted.name and job.limit_key is not null
        end
        returning slot.key
    )
    insert into dibs.bucket as known (kind, name, key, slots)
    select wanted.kind, wanted.name, filled.key, count(*) from filled group by filled.key
    on conflict (kind, name, key) do update set slots = excluded.slots;
end
$$;
