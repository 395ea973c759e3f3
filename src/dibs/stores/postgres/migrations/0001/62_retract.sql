-- Takes back the offer of a worker; false if there is none, or somebody is about to claim by it.
create function dibs.retract(worker text) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
    update dibs.offered set open_until = null
    where offered.ctid = (
        select offered.ctid from dibs.offered
        where offered.worker = worker and offered.open_until is not null
        for update skip locked
    );
    return found;
end
$$;
