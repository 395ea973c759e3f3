-- Holds the step for so long from now. Only for the holder of a valid lease, else no row; `cancel_asked` says that it
-- should stop. For `epoch` see dibs.complete_step.
create function dibs.extend_step(
    step uuid, worker text, lease interval default '30 seconds', epoch integer default null
) returns table (id uuid, locked_until timestamptz, cancel_asked boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    held constant integer := dibs.held_step(extend_step.step, worker, epoch);
begin
    if held is not null and exists (select from dibs.job where job.id = extend_step.step and job.flow is not null)
        and 'lost' <> all (dibs.heartbeat(worker, array[extend_step.step], array[held], lease)) then
        return query select job.id, job.locked_until, job.cancel_asked from dibs.job where job.id = extend_step.step;
    end if;
end
$$;
