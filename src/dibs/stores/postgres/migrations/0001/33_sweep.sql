-- Does what a claim does to jobs that are over, up to `max_jobs` of every queue: first to expired leases, the longest
-- expired first, then to queued jobs that are not to be started any more; see Store.sweep. Other expired leases go back.
-- Not if one has done all of it within the time of `not_within`: it looks up every job that runs.
create function dibs.sweep(max_jobs integer default 1000, not_within interval default null) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- However many jobs wait, those that run are fetched by their ids. To plan that anew for a list of tens of thousands would
-- take nearly as long as to fetch them.
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    running uuid[];
    late uuid[];
    chosen uuid[];
    plain uuid[];
    steps uuid[];
    over uuid[];
    one uuid;
    touched integer;
begin
    if exists (select from dibs.swept where swept.looked_at > moment - not_within and swept.looked_at <= moment) then
        return 0;
    end if;
    running := dibs.take_stock();
    late := array(
        select job.id from dibs.job
        where job.id = any (running) and job.locked_until <= moment
        order by job.locked_until, job.id
        limit max_jobs for update skip locked
    );
    chosen := late || array(
        select job.id from dibs.job
        where job.expires_at <= moment and job.unmet = 0 and job.locked_until is null
        order by job.expires_at, job.id
        limit max_jobs - cardinality(late) for update skip locked
    );
    select
        array_agg(job.id) filter (where job.flow is null),
        array_agg(job.id) filter (where job.flow is null and dibs.is_over(job, moment)),
        array_agg(job.id order by each.place) filter (where job.flow is not null)
    into plain, over, steps
    from unnest(chosen) with ordinality as each (id, place) join dibs.job on job.id = any (array[each.id]);
    if over is not null then
        perform dibs.end_expired(over, moment);
    end if;
    perform dibs.recover(plain, moment);
    touched := coalesce(cardinality(plain), 0);
    foreach one in array coalesce(steps, '{}') loop
        -- Looked at again: the end of one before it may have asked to cancel it, or ended it.
        if exists (select from dibs.job where job.id = one and dibs.is_over(job, moment)) then
            touched := touched + dibs.end_expired(array[one], moment);
        else
            perform dibs.recover(array[one], moment);
            touched := touched + 1;
        end if;
    end loop;
    insert into dibs.taken (jobs)
    select array_agg(held.id) from (
        select job.id, row_number() over () / 100 as part from dibs.job
        where job.id = any (running) and job.locked_until is not null
    ) as held
    group by held.part;
    if running <> '{}' and touched < max_jobs then -- where nothing runs there is nothing to spare others
        update dibs.swept set looked_at = moment;
    end if;
    return touched;
end
$$;
