-- Removes jobs that match, up to `max_jobs` of them, running ones only with `force`; see Store.delete.
create function dibs.delete(
    which jsonb, force boolean default false, after uuid default null, max_jobs integer default 1000
) returns table (count integer, next_after uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    states constant text[] := array['waiting', 'queued', 'succeeded', 'failed', 'cancelled']
        || case when force then array['running'] else '{}' end;
    found constant uuid[] := array(select dibs.matching(dibs.chosen(which), states, after, max_jobs));
    chunk uuid[] := found;
    last uuid := dibs.last_of(found, max_jobs);
    behind uuid;
    flows uuid[];
    touched integer := 0;
    gone integer;
begin
    perform from dibs.job where job.id = any (chunk) and job.flow is null order by job.id for update;
    loop
        with dropped as (
            delete from dibs.job
            where job.id = any (chunk) and job.flow is null and (force or job.locked_until is null) returning 1
        ), forgotten as (
            delete from dibs.finished where finished.id = any (chunk) and finished.flow is null returning 1
        )
        select (select count(*) from dropped) + (select count(*) from forgotten) into gone;
        touched := touched + gone;
        -- A job that was just moved from one table to the other may have been in neither: look again.
        exit when touched >= cardinality(chunk) or not exists (
            select from dibs.job
            where job.id = any (chunk) and job.flow is null and (force or job.locked_until is null)
            union all
            select from dibs.finished where finished.id = any (chunk) and finished.flow is null
        );
    end loop;
    if touched < cardinality(chunk) then
        flows := dibs.lock_flows(chunk);
    end if;
    if flows is not null then
        select again.chunk, again.next_after into chunk, behind
        from dibs.match_again(which, states, after, max_jobs - touched, flows, chunk) as again;
        -- What is gone by now may have stood behind the steps, so where the first look ended counts, as long as it was right.
        if cardinality(chunk) <> cardinality(found) - touched
            or exists (select unnest(chunk) except select unnest(found))
        then
            last := behind;
        end if;
        touched := touched + dibs.delete_steps(chunk, flows, force, dibs.clock());
    end if;
    return query select touched, last;
end
$$;
