-- The part of dibs.delete for steps: one that is unfinished is cancelled first, with all that follows from it. The
-- flows are locked by the caller.
create function dibs.delete_steps(ids uuid[], flows uuid[], force boolean, moment timestamptz) returns integer
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    one uuid;
    touched integer := 0;
begin
    perform dibs.lock_steps(ids, flows);
    if not exists (
        select from dibs.job where job.id = any (ids) and job.flow is not null and (force or job.locked_until is null)
    ) then
        return dibs.forget_steps(array(
            select finished.id from dibs.finished where finished.id = any (ids) and finished.flow is not null
        ));
    end if;
    -- How a flow ends depends on the steps that are there: each goes before the next one is looked at.
    foreach one in array ids loop
        if exists (
            select from dibs.job
            where job.id = one and job.flow is not null and (force or job.locked_until is null)
        ) then
            perform dibs.finish(array[one], moment, 'cancelled', asked => true);
            perform dibs.steps_ended(array[one], moment);
        end if;
        touched := touched + dibs.forget_steps(array[one]);
    end loop;
    return touched;
end
$$;
