-- The results of those needs that have succeeded, by name, and those that are known already because the step is gone.
create function dibs.inputs_of(needs text[], need_ids uuid[], known json) returns json
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select json_object_agg(need.name, coalesce(finished.result, known -> need.name))
    from unnest(needs, need_ids) as need (name, id)
    left join dibs.finished on finished.id = any (array[need.id]) and finished.state = 'succeeded'
    where finished.id is not null or (known -> need.name) is not null
$$;
