-- Those of the flows, locked by the caller, that have no unfinished step left are finished.
create function dibs.close_flows(flows uuid[], moment timestamptz) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    spoilt uuid[];
begin
    with closed as (
        update dibs.flow set
            finished_at = moment,
            state = case when flow.state = 'running' and not flow.flawed then 'succeeded' else flow.state end
        where flow.id = any (flows) and not exists (select from dibs.job where job.flow = flow.id)
        returning flow.id, flow.state
    )
    select array_agg(closed.id) filter (where closed.state = 'running') into spoilt from closed;
    if spoilt is not null then
        -- Some step ended badly, once. What counts is how those ended that are there.
        update dibs.flow set state = case
            when exists (select from dibs.finished where finished.flow = flow.id and finished.state = 'failed') then 'failed'
            when exists (select from dibs.finished where finished.flow = flow.id and finished.state = 'cancelled')
                then 'cancelled'
            else 'succeeded'
        end
        where flow.id = any (spoilt);
    end if;
end
$$;
