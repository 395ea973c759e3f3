-- What a waiting step has got: by name the results of those needs that have succeeded, and those that are known already
-- because the needed step is gone. A job that has come with the id of one that is gone is not linked to the step.
create function dibs.inputs_of(step uuid, needs text[], need_ids uuid[], known json) returns json
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select json_object_agg(need.name, coalesce(finished.result, known -> need.name))
    from unnest(needs, need_ids) as need (name, id)
    left join dibs.finished on finished.id = any (array[need.id]) and finished.state = 'succeeded'
        and exists (
            select from dibs.need as link
            where link.needs = any (array[need.id]) and link.step = any (array[inputs_of.step])
        )
    where finished.id is not null or (known -> need.name) is not null
$$;
