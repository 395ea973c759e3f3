-- Sends the claim of a new job to the worker for which it was stored as running, if that worker would have claimed it now: nothing
-- comes before it, no limit has a say, and the queue is not paused. If not, the offer stands again, the job waits to be
-- claimed, and it is false.
create function dibs.hand(taker dibs.offered, id uuid) returns boolean
language plpgsql volatile
as $$
#variable_conflict use_variable
declare
    moment constant timestamptz := dibs.clock();
    given dibs.job;
begin
    select job.* into given from dibs.job where job.id = id;
    -- As in every claim, see dibs.claim; but nobody who brings a job waits for those who set limits.
    begin
        lock table dibs.gate in row share mode nowait;
    exception when lock_not_available then
        given.locked_until := null;
    end;
    if given.locked_until > moment + taker.lease / 2
        and not exists (select from dibs.queue where queue.name = given.queue and queue.paused)
        and not exists (
            select from dibs.scope
            where (scope.kind = 'task' and scope.name = given.task)
                or (scope.kind in ('key', 'queue') and scope.name = given.queue)
        )
        and not exists (select from dibs.due(array[given.queue]))
    then
        insert into dibs.taken (jobs) values (array[id]);
        perform pg_notify('dibs_hand_' || taker.listener, json_build_array(
            taker.worker, given.queue, id, given.task, given.args, given.priority, given.run_at, given.max_attempts,
            given.locked_until, given.meta
        )::text);
        return true;
    end if;
    update dibs.offered set open_until = taker.open_until where offered.worker = taker.worker;
    update dibs.job set worker = null, locked_until = null, started_at = null, epoch = 0, attempts = 0 where job.id = id;
    return false;
end
$$;
