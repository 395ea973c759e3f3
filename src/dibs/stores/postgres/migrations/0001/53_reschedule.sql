-- Sets when waiting and queued jobs that match are due, up to `max_jobs` of them; see Store.reschedule.
create function dibs.reschedule(
    which jsonb, run_at timestamptz, after uuid default null, max_jobs integer default 1000
) returns table (count integer, next_after uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    chunk constant uuid[] := array(select dibs.matching(dibs.chosen(which), array['waiting', 'queued'], after, max_jobs));
    touched integer;
    due text[];
begin
    perform dibs.check_times(array[reschedule.run_at]);
    perform from dibs.job where job.id = any (chunk) and job.flow is null order by job.id for update;
    if dibs.lock_flows(chunk) is not null then
        perform from dibs.job where job.id = any (chunk) order by job.id for update;
    end if;
    with moved as (
        update dibs.job set run_at = reschedule.run_at
        where job.id = any (chunk) and job.locked_until is null
        returning job.queue
    )
    select count(*), array_agg(distinct moved.queue) into touched, due from moved;
    if due is not null then
        perform dibs.wake(due);
    end if;
    return query select touched, dibs.last_of(chunk, max_jobs);
end
$$;
