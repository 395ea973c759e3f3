-- The part of dibs.prune for steps. Those of a flow that somebody else has locked stay for another time.
create function dibs.prune_steps(ids uuid[], before timestamptz) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    flows constant uuid[] := array(select distinct finished.flow from dibs.finished where finished.id = any (ids));
    locked constant uuid[] := array(
        select flow.id from dibs.flow where flow.id = any (flows) order by flow.id for update skip locked
    );
begin
    return dibs.forget_steps(array(
        select finished.id from dibs.finished
        where finished.id = any (ids) and finished.flow = any (locked) and finished.finished_at <= before
    ));
end
$$;
