-- What a bulk verb changes, looked up again once the flows of what it found are locked: what happened to them until then
-- came before. Jobs of other flows that match only now are left out: their flows are not locked.
create function dibs.match_again(
    which jsonb, states text[], after uuid, max_jobs integer, flows uuid[], inout chunk uuid[], out next_after uuid
)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    matched constant uuid[] := array(select dibs.matching(which, states, after, max_jobs));
begin
    next_after := dibs.last_of(matched, max_jobs);
    chunk := array(
        select each.id from unnest(matched) with ordinality as each (id, place)
        where each.id = any (chunk)
            or exists (select from dibs.job where job.id = each.id and job.flow = any (flows))
            or exists (select from dibs.finished where finished.id = each.id and finished.flow = any (flows))
        order by each.place
    );
end
$$;
