-- Takes all rows out of dibs.taken and returns the jobs in them that run. The caller writes down again, in this transaction,
-- those that still do when it is through with them. Sweeps do this in turn: to others it returns null.
create function dibs.take_stock() returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    sight pg_snapshot;
    claimed uuid[];
begin
    if not exists (select from dibs.swept) then -- somebody has emptied every table
        insert into dibs.swept default values on conflict do nothing;
    end if;
    perform from dibs.swept for update skip locked;
    if not found then
        return null;
    end if;
    sight := pg_current_snapshot(); -- before the rows are looked at: what it has seen is among them
    with gone as (
        delete from dibs.taken using dibs.unswept() as unswept
        where taken.claimed_in >= unswept.since or taken.claimed_in = any (unswept.besides)
        returning taken.jobs
    )
    select array_agg(each.id) into claimed from gone, unnest(gone.jobs) as each (id);
    if claimed is not null then
        update dibs.swept set seen = sight, sweeper = pg_current_xact_id();
    end if;
    return array(select job.id from dibs.job where job.id = any (claimed) and job.locked_until is not null);
end
$$;
