-- Sets the priority of waiting and queued jobs that match, up to `max_jobs` of them; see Store.reprioritise.
create function dibs.reprioritise(
    which jsonb, priority integer, after uuid default null, max_jobs integer default 1000
) returns table (count integer, next_after uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    chunk constant uuid[] := array(select dibs.matching(dibs.chosen(which), array['waiting', 'queued'], after, max_jobs));
    touched integer;
begin
    perform from dibs.job where job.id = any (chunk) and job.flow is null order by job.id for update;
    if dibs.lock_flows(chunk) is not null then
        perform from dibs.job where job.id = any (chunk) order by job.id for update;
    end if;
    update dibs.job set priority = reprioritise.priority::smallint
    where job.id = any (chunk) and job.locked_until is null;
    get diagnostics touched = row_count;
    return query select touched, dibs.last_of(chunk, max_jobs);
end
$$;
