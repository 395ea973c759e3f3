-- Writes down under a limit of concurrency which jobs have just been claimed: one array per property, `epochs` being those
-- before the claim. Those that do not come under it are left out. The limit is locked by the caller.
create function dibs.add_slots(own dibs.scope, ids uuid[], epochs integer[], tasks text[], keys text[]) returns void
language plpgsql volatile
as $$
#variable_conflict use_column
begin
    insert into dibs.slot (kind, name, part, keys, jobs, epochs)
    select
        own.kind, own.name, dibs.part_of(case when own.kind = 'key' then item.key else '' end),
        case when own.kind = 'key' then array_agg(item.key) end, array_agg(item.id), array_agg(item.epoch + 1)
    from unnest(ids, epochs, tasks, keys) with ordinality as item (id, epoch, task, key, nth)
    where case own.kind when 'task' then item.task = own.name when 'key' then item.key is not null else true end
    -- A row of more would not fit on a page with others.
    group by 3, item.nth / case when own.kind = 'key' then 500 else 50 end;
end
$$;
