-- Locks the flows that these jobs are steps of, in the order of their ids, until the transaction ends: nobody else ends,
-- cancels, requeues or removes a step of them meanwhile. Returns them; null if there are none. What is read in
-- statements after this one is what the last holder of the lock left behind.
create function dibs.lock_flows(ids uuid[]) returns uuid[]
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    flows uuid[];
begin
    select array_agg(distinct found.flow) into flows
    from (
        select job.flow from dibs.job where job.id = any (ids) and job.flow is not null
        union all
        select finished.flow from dibs.finished where finished.id = any (ids) and finished.flow is not null
    ) as found;
    if flows is not null then
        perform from dibs.flow where flow.id = any (flows) order by flow.id for update;
    end if;
    return flows;
end
$$;
