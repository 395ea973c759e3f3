-- Those of the flows, locked by the caller, that have no unfinished step left are finished.
create function dibs.close_flows(flows uuid[], moment timestamptz) returns void
language sql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
    update dibs.flow set
        finished_at = moment,
        state = case
            when flow.state <> 'running' then flow.state
            when not flow.flawed then 'succeeded'
            when exists (select from dibs.finished where finished.flow = flow.id and finished.state = 'failed') then 'failed'
            when exists (select from dibs.finished where finished.flow = flow.id and finished.state = 'cancelled')
                then 'cancelled'
            else 'succeeded'
        end
    where flow.id = any (flows) and not exists (select from dibs.job where job.flow = flow.id)
$$;
