-- The second phase of a claim in two: takes the jobs that dibs.claim_lock locked in this transaction, in that order.
-- Those that are not to be started (again) are ended instead. Ends with the first step that is: then call both again.
create function dibs.claim_take(ids uuid[], worker text, lease interval default '30 seconds')
returns setof dibs.claimed
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    over uuid[];
    -- Where the first step stands that will be ended: those behind it are not to be claimed before that.
    fallen integer;
begin
    if coalesce(worker, '') = '' or lease is null or lease not between '1 second' and '24 hours' then
        raise 'a % needs a worker and a lease from 1 second to 24 hours', 'claim' using errcode = 'invalid_parameter_value';
    end if;
    select array_agg(job.id) filter (where job.flow is null), min(locked.place) filter (where job.flow is not null)
    into over, fallen
    from unnest(ids) with ordinality as locked (id, place) join dibs.job on job.id = any (array[locked.id])
    where (job.locked_until is null or job.locked_until <= moment) and dibs.is_over(job, moment);
    if over is not null then
        perform dibs.end_expired(over, moment);
    end if;
    insert into dibs.taken (jobs) select ids where ids <> '{}';
    return query
    with taken as (
        update dibs.job set
            worker = claim_take.worker, locked_until = moment + lease, started_at = moment, outcome = null,
            epoch = job.epoch + 1, attempts = job.attempts + 1,
            errors = case when job.locked_until is null then job.errors else dibs.with_error(
                job.errors, job.attempts, job.epoch, job.worker, job.started_at, moment, 'lease expired', ''
            ) end
        from unnest(ids[:coalesce(fallen - 1, cardinality(ids))]) with ordinality as locked (id, place)
        where job.id = any (array[locked.id]) and (job.locked_until is null or job.locked_until <= moment)
        returning
            job.id, job.epoch, job.task, job.args, job.priority, job.run_at, job.created_at, job.attempts,
            job.max_attempts, job.locked_until, job.key, job.flow, job.step, job.meta, job.inputs,
            locked.place
    )
    select
        taken.id, taken.epoch, taken.task, taken.args, taken.priority, taken.run_at, taken.created_at, taken.attempts,
        taken.max_attempts, taken.locked_until, taken.key, taken.flow, taken.step, taken.meta,
        taken.inputs
    from taken order by taken.place;
    if exists (select from dibs.scope) then
        perform dibs.note_starts(
            job.queue, array_agg(job.id), array_agg(job.epoch - 1), array_agg(job.task), array_agg(job.limit_key), moment
        )
        from unnest(ids) as item (id) join dibs.job on job.id = any (array[item.id])
        where job.started_at = moment and job.locked_until > moment
        group by job.queue;
    end if;
    if fallen is not null then
        perform dibs.end_expired(ids[fallen:fallen], moment);
    end if;
end
$$;
