-- Takes the first jobs of a queue for a worker, lane by lane, for as long as every limit surely has room for all that are
-- found at once and none of them is over. What it leaves has to be judged one by one. For `after_…` and `thorough` see
-- dibs.claim: the places are of use if no claim has passed a job since `looked_at`, when the caller looked from the beginning.
create function dibs.claim_freely(
    queue text, worker text, max_jobs integer, lease interval, tasks text[], after_priority smallint[],
    after_run_at timestamptz[], after_id uuid[], thorough boolean, looked_at timestamptz
) returns setof dibs.claimed
language plpgsql volatile
as $$
#variable_conflict use_column
declare
    moment timestamptz := dibs.clock();
    newest_first boolean;
    limited text[];
    limited_tasks text[];
    lane integer := -32769;
    spot integer;
    wanted integer := max_jobs;
    -- Nothing that a limit holds back, or held back, stands before the places.
    clear boolean;
    spots tid[]; ids uuid[]; epochs integer[]; job_tasks text[]; job_keys text[]; plain boolean;
begin
    select
        coalesce(queue.lifo, false), case when queue.ageing is null then max_jobs else 0 end,
        array(select scope.kind from dibs.scope where scope.kind in ('key', 'queue') and scope.name = claim_freely.queue),
        array(
            select scope.name from dibs.scope
            where scope.kind = 'task' and (tasks is null or scope.name = any (tasks))
        ),
        looked_at is not null and not exists (
            select from dibs.passed
            where passed.queue = claim_freely.queue and passed.at > looked_at - interval '0.5 seconds'
        )
    into newest_first, wanted, limited, limited_tasks, clear
    from (select) as nothing left join dibs.queue on queue.name = claim_freely.queue;
    if limited <> '{}' and wanted > 0 then
        perform dibs.lock_scopes(queue, '{}', may_wait => true);
        moment := dibs.clock();
    end if;
    while wanted > 0 loop
        -- Behind the place in its lane first; then, if that is too few, from the beginning of the lane.
        if spot is null or not thorough then
            lane := dibs.next_lane(queue, lane, after_priority);
            exit when lane is null;
            spot := case when clear and not newest_first then array_position(after_priority, lane::smallint) end;
        else
            spot := null;
        end if;
        select
            array_agg(due.spot), array_agg(due.id), array_agg(due.epoch), array_agg(due.task), array_agg(due.limit_key),
            bool_and(due.plain)
        into spots, ids, epochs, job_tasks, job_keys, plain
        from dibs.first_due(
            queue, lane, newest_first, tasks, moment, wanted, after_run_at[spot], after_id[spot]
        ) as due;
        continue when spots is null;
        exit when not plain or not dibs.take_room(
            queue, ids, epochs, job_tasks, job_keys, limited, limited_tasks, moment, may_wait => wanted = max_jobs
        );
        insert into dibs.taken (jobs) values (ids);
        return query
        update dibs.job set
            worker = claim_freely.worker, locked_until = moment + lease, started_at = moment, outcome = null,
            epoch = job.epoch + 1, attempts = job.attempts + 1,
            errors = case when job.locked_until is null then job.errors else dibs.with_error(
                job.errors, job.attempts, job.epoch, job.worker, job.started_at, moment, 'lease expired', ''
            ) end
        from unnest(spots) as due (spot)
        where job.ctid = due.spot
        returning
            job.id, job.epoch, job.task, job.args, job.priority, job.run_at, job.created_at, job.attempts,
            job.max_attempts, job.locked_until, job.key, job.flow, job.step, job.meta, job.inputs;
        wanted := wanted - cardinality(spots);
    end loop;
end
$$;
