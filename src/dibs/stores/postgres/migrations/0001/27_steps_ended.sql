-- All that follows in their flows from steps that have just been moved to the finished ones, in the order given. The
-- flows are locked by the caller.
create function dibs.steps_ended(ids uuid[], moment timestamptz) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    good uuid[];
    bad uuid[];
    flows uuid[];
begin
    select
        array_agg(finished.id order by over.place) filter (where finished.state = 'succeeded'),
        array_agg(finished.id order by over.place) filter (where finished.state <> 'succeeded'),
        array_agg(distinct finished.flow)
    into good, bad, flows
    from unnest(ids) with ordinality as over (id, place)
    cross join lateral (select * from dibs.finished where finished.id = over.id limit 1) as finished
    where finished.flow is not null;
    if good is not null then
        perform dibs.release_steps(good, moment);
    end if;
    if bad is not null then
        perform dibs.stop_steps(bad, moment);
    end if;
    perform dibs.close_flows(flows, moment);
end
$$;
