-- Sends finished jobs that match back to queued, up to `max_jobs` of them; see Store.requeue.
create function dibs.requeue(which jsonb, after uuid default null, max_jobs integer default 1000)
returns table (count integer, next_after uuid)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    states constant text[] := array['succeeded', 'failed', 'cancelled'];
    chunk uuid[] := array(select dibs.matching(dibs.chosen(which), states, after, max_jobs));
    last uuid := dibs.last_of(chunk, max_jobs);
    flows uuid[];
    revived uuid[];
    due text[];
begin
    perform from dibs.finished where finished.id = any (chunk) and finished.flow is null order by finished.id for update;
    flows := dibs.lock_flows(chunk);
    if flows is not null then
        select again.chunk, again.next_after into chunk, last
        from dibs.match_again(which, states, after, max_jobs, flows, chunk) as again;
        perform from dibs.finished where finished.id = any (chunk) order by finished.id for update;
    end if;
    -- A job whose key is busy stays where it is; of several with one key the newest goes.
    with stored as (
        insert into dibs.job (
            id, run_at, created_at, epoch, priority, max_attempts, queue, task, key, flow, step, args, meta, errors,
            report, unique_until, expires_at, limit_key, needs, need_ids
        )
        select
            id, moment, created_at, epoch, priority, max_attempts, queue, task, key, flow, step, args, meta, errors,
            report - array['progress', 'note'], unique_until, expires_at, limit_key, needs, need_ids
        from dibs.finished where finished.id = any (chunk)
        order by finished.id desc
        on conflict do nothing
        returning job.id, job.queue, job.flow
    )
    select
        array_agg(stored.id), array_agg(distinct stored.queue) filter (where stored.flow is null),
        array_agg(distinct stored.flow) filter (where stored.flow is not null)
    into revived, due, flows
    from stored;
    delete from dibs.finished where finished.id = any (revived);
    if flows is not null then
        perform dibs.begin_again(flows, moment);
    end if;
    if due is not null then
        perform dibs.wake(due);
    end if;
    return query select coalesce(cardinality(revived), 0), last;
end
$$;
