-- Takes up to `max_jobs` due jobs of a queue for a worker, first in the order first; see Store.claim.
--
-- after_priority, after_run_at, after_id: per lane (priority) a place in the order that the caller has claimed up to.
-- The scan of that lane starts behind it instead of at the beginning, where the index may be full of entries of jobs
-- that are running, or finished but not vacuumed. From `after_until` on the places are ignored, and if a scan finds too
-- few and `thorough` is set, its lane is looked through from the beginning. Without places every claim does that.
-- looked_at: when the caller last looked from the beginning; without it the places are of no use under limits.
create function dibs.claim(
    queue text, worker text, max_jobs integer default 1, lease interval default '30 seconds',
    tasks text[] default null, after_priority smallint[] default null, after_run_at timestamptz[] default null,
    after_id uuid[] default null, after_until timestamptz default null, thorough boolean default true,
    looked_at timestamptz default null
) returns setof dibs.claimed
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
-- One plan, whatever the statistics say: walk the claim index, fetch the rows found.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    moment timestamptz;
    newest_first boolean;
    in_steps boolean;
    lanes smallint[];
    lane integer := -32769;
    known integer := 1;
    spot integer;
    from_run_at timestamptz;
    from_id uuid;
    wanted integer := max_jobs;
    got integer;
begin
    if coalesce(worker, '') = '' or lease is null or lease not between '1 second' and '24 hours' then
        raise 'a % needs a worker and a lease from 1 second to 24 hours', 'claim' using errcode = 'invalid_parameter_value';
    end if;
    -- A claim of few is over sooner than its turn would come.
    if max_jobs >= 10 then
        perform dibs.await_turn(queue);
    end if;
    moment := dibs.clock();
    lanes := case when moment < after_until then after_priority end;
    -- Whoever sets a limit waits for those who claim without one, so that it finds all that they have taken.
    lock table dibs.gate in row share mode;
    select
        coalesce(queue.lifo, false), case when queue.paused then 0 else max_jobs end,
        queue.ageing is not null
            or exists (select from dibs.scope where scope.kind = 'task' or scope.name = claim.queue)
    into newest_first, wanted, in_steps
    from (select) as nothing left join dibs.queue on queue.name = claim.queue;
    if in_steps and wanted > 0 then
        return query select * from dibs.claim_in_steps(
            queue, worker, wanted, lease, tasks, lanes, after_run_at, after_id, thorough, looked_at
        );
        return;
    end if;

    while wanted > 0 loop
        -- As dibs.next_lane does it, without a function: this is done in every claim.
        while lanes[known] <= lane loop
            known := known + 1;
        end loop;
        lane := coalesce((
            select job.priority from dibs.job
            where job.queue = claim.queue and job.unmet = 0
                and job.priority > lane and job.priority < coalesce(lanes[known], 32768)
            order by job.priority
            limit 1
        ), lanes[known]);
        exit when lane is null;
        spot := array_position(lanes, lane::smallint);
        from_run_at := coalesce(after_run_at[spot], '-infinity');
        from_id := coalesce(after_id[spot], '00000000-0000-0000-0000-000000000000');
        loop
            if newest_first then
                return query select * from dibs.claim_newest(queue, lane, worker, wanted, lease, tasks, moment);
            else
                return query
                with due as materialized (
                    select
                        job.ctid as spot, job.id, job.run_at, job.flow,
                        coalesce(job.expires_at <= moment, false)
                            or (job.locked_until is not null and (job.cancel_asked or job.attempts >= job.max_attempts)) as over
                    from dibs.job
                    where job.queue = claim.queue and job.unmet = 0 and job.priority = lane and job.run_at <= moment
                        and (job.run_at, job.id) > (from_run_at, from_id)
                        and (job.locked_until is null or job.locked_until <= moment)
                        and (tasks is null or job.task = any (tasks))
                    order by job.run_at, job.id
                    limit wanted for update skip locked
                ), fallen as materialized (
                    -- Steps whose end will stop their flow: those behind them are not to be claimed before that.
                    select due.flow, due.run_at, due.id from due where due.over and due.flow is not null and dibs.stops(due.flow)
                ), noted as (
                    insert into dibs.taken (jobs) select array_agg(due.id) from due having count(*) > 0
                ), taken as (
                    -- By their addresses all at once, not by a join: that looks them up one by one, which takes a quarter longer.
                    update dibs.job set
                        worker = claim.worker, locked_until = moment + lease, started_at = moment, outcome = null,
                        epoch = job.epoch + 1, attempts = job.attempts + 1,
                        errors = case when job.locked_until is null then job.errors else dibs.with_error(
                            job.errors, job.attempts, job.epoch, job.worker, job.started_at, moment, 'lease expired', ''
                        ) end
                    where job.ctid = any (array(
                        select due.spot from due
                        where not due.over and (due.flow is null or not exists (
                            select from fallen
                            where fallen.flow = due.flow and (fallen.run_at, fallen.id) < (due.run_at, due.id)
                        ))
                    ))
                    returning
                        job.id, job.epoch, job.task, job.args, job.priority, job.run_at, job.created_at, job.attempts,
                        job.max_attempts, job.locked_until, job.key, job.flow, job.step, job.meta, job.inputs
                )
                select * from taken order by taken.run_at, taken.id;
            end if;
            get diagnostics got = row_count;
            wanted := wanted - got;
            exit when wanted = 0;
            if spot is not null and thorough then
                spot := null;
                from_run_at := '-infinity';
                from_id := '00000000-0000-0000-0000-000000000000';
            else
                exit when spot is not null or dibs.bury(queue, lane, newest_first, tasks, moment, wanted) = 0;
            end if;
        end loop;
    end loop;
end
$$;
