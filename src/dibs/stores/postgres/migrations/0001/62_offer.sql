-- Leaves what whoever enqueues a job may claim for a worker, once, in place of its last offer. Answers the time; or null, and
-- nothing is left, if the worker does better to wait for a call: a limit has a say, or something is due already.
create function dibs.offer(
    worker text, listener text, queues text[], lease interval, tasks text[] default null,
    good_for interval default '10 seconds'
) returns timestamptz
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    moment constant timestamptz := dibs.clock();
    began timestamptz;
begin
    if coalesce(worker, '') = '' or length(worker) > 200 or lease is null or lease not between '1 second' and '24 hours' then
        raise 'an % needs a worker and a lease from 1 second to 24 hours', 'offer' using errcode = 'invalid_parameter_value';
    end if;
    if exists (
        select from dibs.scope
        where case scope.kind when 'task' then tasks is null or scope.name = any (tasks) else scope.name = any (queues) end
    ) or exists (select from dibs.due(queues)) then
        return null;
    end if;
    -- An enqueue that finds an offer looks through this table and for what is due. While an old snapshot keeps what is dead, or
    -- thousands of jobs run, that may take long: then there are no offers. (The look above may have been the first of this
    -- connection.) Rows that go let a table shrink that has grown too long.
    began := clock_timestamp();
    perform from dibs.due(queues);
    if clock_timestamp() - began > interval '1 millisecond' or pg_relation_size('dibs.offered') > 1024 * 1024 then
        delete from dibs.offered where offered.ctid = (
            select offered.ctid from dibs.offered where offered.worker = worker for update skip locked
        );
        return null;
    end if;
    update dibs.offered
    set
        listener = listener, queues = queues, tasks = tasks, lease = lease,
        open_until = moment + least(good_for, interval '1 minute')
    where offered.ctid = (select offered.ctid from dibs.offered where offered.worker = worker for update skip locked);
    if not found and not exists (select from dibs.offered where offered.worker = worker) then
        insert into dibs.offered (worker, listener, queues, tasks, lease, open_until)
        values (worker, listener, queues, tasks, lease, moment + least(good_for, interval '1 minute'))
        on conflict do nothing;
    end if;
    return case when found then moment end;
end
$$;
