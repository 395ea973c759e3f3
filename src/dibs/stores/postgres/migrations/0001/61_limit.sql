-- Limits the jobs of a queue, of each key of a queue, or of a task: how many run at once, and how many start in how much
-- time. With neither the limit is taken away. A limit of a higher rank stays as it is; see Store.limit.
--
-- A limit that changes keeps claims out until the transaction ends, after those under way have ended: what they hold
-- is counted.
create function dibs.limit(
    queue text default null, task text default null, each_key boolean default false,
    concurrency integer default null, starts integer default null, per interval default null, rank bigint default 0
) returns void
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
    wanted constant dibs.scope := dibs.checked_scope(queue, task, each_key, concurrency, starts, per, rank);
    known dibs.scope;
begin
    select * into known from dibs.scope where scope.kind = wanted.kind and scope.name = wanted.name;
    if (known.kind is null and wanted.concurrency is null and wanted.starts is null)
        or (known.rank > wanted.rank and num_nonnulls(wanted.concurrency, wanted.starts) > 0)
        or known is not distinct from wanted then
        return;
    end if;
    lock table dibs.gate in exclusive mode;
    select * into known from dibs.scope where scope.kind = wanted.kind and scope.name = wanted.name for update;
    if num_nonnulls(wanted.concurrency, wanted.starts) = 0 then
        delete from dibs.scope where scope.kind = wanted.kind and scope.name = wanted.name;
    elsif known.rank > wanted.rank then
        return;
    else
        insert into dibs.scope select wanted.*
        on conflict (kind, name) do update set
            rank = excluded.rank, concurrency = excluded.concurrency, starts = excluded.starts, per = excluded.per,
            apart = excluded.apart;
    end if;
    if (known.starts, known.per) is distinct from (wanted.starts, wanted.per) then
        update dibs.bucket set full_at = null where bucket.kind = wanted.kind and bucket.name = wanted.name;
    end if;
    if (known.concurrency is null) <> (wanted.concurrency is null) then
        perform dibs.fill_slots(wanted, dibs.clock());
    end if;
    delete from dibs.bucket
    where bucket.kind = wanted.kind and bucket.name = wanted.name and bucket.slots = 0 and bucket.full_at is null;
end
$$;
