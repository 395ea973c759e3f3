-- Removes finished steps for good, and flows that have no step left; their flows are locked by the caller. A step that
-- still waits for another keeps the results of those that go. Nobody needs them from now on, nor do they need anybody:
-- who comes with a name or an id of theirs is another. Returns how many there were.
create function dibs.forget_steps(ids uuid[]) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    flows uuid[];
    touched integer;
begin
    update dibs.job set inputs = dibs.inputs_of(job.id, job.needs, job.need_ids, job.inputs)
    where job.unmet > 0 and job.id in (
        select need.step
        from unnest(ids) as old (id)
        join dibs.need on need.needs = any (array[old.id])
        cross join lateral (select * from dibs.finished where finished.id = old.id limit 1) as finished
        where finished.state = 'succeeded'
    );
    delete from dibs.need where need.needs = any (ids);
    delete from dibs.need using (
        select finished.id, unnest(finished.need_ids) as needs from dibs.finished where finished.id = any (ids)
    ) as went
    where need.needs = any (array[went.needs]) and need.step = any (array[went.id]);
    with gone as (
        delete from dibs.finished where finished.id = any (ids) and finished.flow is not null returning finished.flow
    )
    select count(*), array_agg(distinct gone.flow) into touched, flows from gone;
    delete from dibs.flow
    where flow.id = any (flows)
        and not exists (select from dibs.job where job.flow = flow.id)
        and not exists (select from dibs.finished where finished.flow = flow.id);
    return touched;
end
$$;
