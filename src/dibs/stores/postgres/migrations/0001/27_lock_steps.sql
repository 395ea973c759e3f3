-- Locks unfinished steps, and all others of those of the flows that stop if one of them ends badly, in one go and in the
-- order of their ids. The flows are locked by the caller.
create function dibs.lock_steps(ids uuid[], flows uuid[]) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    every constant uuid[] := ids || array(
        select job.id from dibs.flow join dibs.job on job.flow = any (array[flow.id])
        where flow.id = any (flows) and flow.state = 'running' and flow.on_failure = 'stop'
    );
begin
    perform from dibs.job where job.id = any (every) and job.flow is not null order by job.id for update;
end
$$;
