-- Drops up to `max_jobs` finished jobs that are older than they are kept, null for ever, the longest finished first,
-- and forgets workers that were not seen for a day; see Store.prune.
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
    touched integer;
begin
    delete from dibs.finished where finished.id in (
        select old.id from dibs.finished as old
        where old.finished_at <= moment - least(succeeded, failed, cancelled)
            and old.finished_at <= moment - case old.state
                when 'succeeded' then succeeded when 'failed' then failed else cancelled end
        order by old.finished_at, old.id
        limit max_jobs
    );
    get diagnostics touched = row_count;
    delete from dibs.worker
    where seen_at <= moment - interval '1 day'
        and not exists (select from dibs.job where job.worker = worker.name and job.locked_until is not null);
    return touched;
end
$$;
