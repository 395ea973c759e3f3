-- Takes up the offer of a worker that would claim a due job of this task now, before any other: answers the offer, or null if
-- there is none. Whoever calls makes the claim, in the same transaction.
create function dibs.take_offer(queue text, task text, moment timestamptz) returns dibs.offered
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
    taken dibs.offered;
begin
    loop
        update dibs.offered set open_until = null
        where offered.ctid = (
            select offered.ctid from dibs.offered
            where offered.open_until > moment and queue = any (offered.queues)
                and (offered.tasks is null or task = any (offered.tasks))
            limit 1 for update skip locked
        )
        returning offered.* into taken;
        exit when not found or dibs.attends(taken.listener);
        delete from dibs.offered where offered.worker = taken.worker;
    end loop;
    if taken.worker is null then
        return null;
    end if;
    -- As in every claim; see dibs.claim.
    lock table dibs.gate in row share mode;
    if exists (select from dibs.queue where queue.name = queue and queue.paused)
        or exists (
            select from dibs.scope
            where (scope.kind = 'task' and scope.name = task) or (scope.kind in ('key', 'queue') and scope.name = queue)
        )
        or exists (select from dibs.due(array[queue]))
    then
        return null;
    end if;
    return taken;
end
$$;
