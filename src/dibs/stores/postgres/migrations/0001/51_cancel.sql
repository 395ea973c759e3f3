-- Cancels unfinished jobs that match, up to `max_jobs` of them; see Store.cancel. Returns how many, and where to go on.
create function dibs.cancel(
    which jsonb, force boolean default false, after uuid default null, max_jobs integer default 1000
) returns table (count integer, next_after uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    states constant text[] := array['waiting', 'queued', 'running'];
    chunk uuid[] := array(select dibs.matching(dibs.chosen(which), states, after, max_jobs));
    last uuid := dibs.last_of(chunk, max_jobs);
    flows uuid[];
    ending uuid[];
    asking uuid[];
    owners text[];
begin
    perform from dibs.job where job.id = any (chunk) and job.flow is null order by job.id for update;
    flows := dibs.lock_flows(chunk);
    if flows is not null then
        select again.chunk, again.next_after into chunk, last
        from dibs.match_again(which, states, after, max_jobs, flows, chunk) as again;
        perform dibs.lock_steps(chunk, flows);
    end if;
    select
        array_agg(job.id order by job.id desc) filter (where force or job.locked_until is null),
        array_agg(job.id order by job.id) filter (where not force and job.locked_until is not null),
        array_agg(distinct job.worker) filter (where job.locked_until is not null)
    into ending, asking, owners
    from dibs.job where job.id = any (chunk);
    if asking is not null then
        update dibs.job set cancel_asked = true where job.id = any (asking);
    end if;
    if ending is not null then
        perform dibs.finish(ending, moment, 'cancelled', asked => true);
    end if;
    if flows is not null and ending is not null then
        perform dibs.steps_ended(ending, moment);
    end if;
    if owners is not null then
        perform dibs.wake_workers(owners);
    end if;
    return query select coalesce(cardinality(ending), 0) + coalesce(cardinality(asking), 0), last;
end
$$;
