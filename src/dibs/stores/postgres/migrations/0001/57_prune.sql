-- Drops up to `max_jobs` finished jobs that are older than they are kept, null for ever, the longest finished first,
-- and forgets workers that were not seen for a day, offers of those that are gone, and what is no longer used of limits and
-- keys; see Store.prune.
create function dibs.prune(
    succeeded interval default '7 days', failed interval default '30 days', cancelled interval default '7 days',
    max_jobs integer default 1000
) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    plain uuid[];
    steps uuid[];
    touched integer;
begin
    select array_agg(old.id) filter (where old.flow is null), array_agg(old.id) filter (where old.flow is not null)
    into plain, steps
    from (
        select old.id, old.flow from dibs.finished as old
        where old.finished_at <= moment - least(succeeded, failed, cancelled)
            and old.finished_at <= moment - case old.state
                when 'succeeded' then succeeded when 'failed' then failed else cancelled end
        order by old.finished_at, old.id
        limit max_jobs
    ) as old;
    -- One that was requeued meanwhile may have finished again.
    delete from dibs.finished
    where finished.id = any (plain) and finished.finished_at <= moment - least(succeeded, failed, cancelled);
    get diagnostics touched = row_count;
    if steps is not null then
        touched := touched + dibs.prune_steps(steps, moment - least(succeeded, failed, cancelled));
    end if;
    delete from dibs.worker
    where seen_at <= moment - interval '1 day'
        and not exists (
            select from dibs.job
            where job.id = any ((select dibs.maybe_running())::uuid[])
                and job.worker = worker.name and job.locked_until is not null
        );
    delete from dibs.key_window where key_window.until <= moment;
    perform dibs.forget_limits(moment);
    perform dibs.forget_offers();
    return touched;
end
$$;
