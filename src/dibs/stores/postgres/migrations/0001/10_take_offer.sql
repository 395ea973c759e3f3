-- Takes up the offer of a worker that would claim a job of this task, and lives; all null if there is none. For transactions
-- that end soon: nobody else sees that offer meanwhile.
create function dibs.take_offer(queue text, task text, moment timestamptz) returns dibs.offered
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
    taken dibs.offered;
begin
    for attempt in 1..10 loop
        select offered.* into taken from dibs.offered
        where offered.open_until > moment and queue = any (offered.queues)
            and (offered.tasks is null or task = any (offered.tasks))
        limit 1 for update skip locked;
        exit when not found;
        if dibs.attends(taken.listener) then
            update dibs.offered set open_until = null where offered.worker = taken.worker;
            return taken;
        end if;
        delete from dibs.offered where offered.worker = taken.worker;
    end loop;
    return null;
end
$$;
