-- A filter for a verb that changes jobs: an empty one has to say that it means every job.
create function dibs.chosen(which jsonb) returns jsonb
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    if which = '{}' or which = '{"everything": false}' then
        raise 'this filter is empty and would match every job: say {"everything": true} if so'
            using errcode = 'invalid_parameter_value';
    end if;
    return which;
end
$$;
