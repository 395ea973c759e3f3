-- Stores one job that is due now and has none of what most jobs leave out, in half the time of dibs.enqueue_arrays.
-- False, and nothing has changed, unless it can be seen at a glance that there is no more to it: an id that is known, a
-- name with a space in it or one to be refused. Then it is for dibs.enqueue_arrays to say what is to be said.
--
-- hand: if a worker has left an offer (dibs.offer), the job is claimed for it and sent to it. Its lease begins now: not for
-- transactions that go on afterwards.
create function dibs.enqueue_plain(
    id uuid, queue text, task text, args json, priority smallint default 0, max_attempts smallint default 5,
    meta json default '{}', wake boolean default true, hand boolean default false
) returns boolean
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    moment constant timestamptz := dibs.clock();
    -- What a name must not hold, and a space.
    odd constant text := '[\u0001-\u0020\u007f-\u009f\u2028\u2029]';
    taker dibs.offered;
    handed boolean := false;
begin
    if length(queue) between 1 and 200 and queue !~ odd and length(task) between 1 and 200 and task !~ odd
        and max_attempts between 1 and 1000
    then
        -- One attempt is not to be spent on the way. A message holds 8,000 bytes, and three names may have 1,600 of them each.
        -- Who reads an old snapshot would be refused an offer that others have changed.
        if hand and max_attempts > 1 and octet_length(args::text) + octet_length(meta::text) <= 2500
            and current_setting('transaction_isolation') = 'read committed'
        then
            taker := dibs.take_offer(queue, task, moment);
            handed := taker.worker is not null;
        end if;
        insert into dibs.job (
            id, queue, task, args, priority, run_at, created_at, max_attempts, meta,
            worker, locked_until, started_at, epoch, attempts
        ) values (
            id, queue, task, args, priority, moment, moment, max_attempts, meta,
            taker.worker, moment + taker.lease, case when handed then moment end, handed::integer, handed::integer
        )
        on conflict do nothing;
        -- One that is known as finished is looked up after the insert, so that a settle between the two is seen.
        if found and not exists (select from dibs.finished where finished.id = enqueue_plain.id) then
            if handed then
                handed := dibs.hand(taker, id);
            end if;
            if wake and not handed then
                perform pg_notify('dibs', queue);
            end if;
            return true;
        elsif found then
            delete from dibs.job where job.id = enqueue_plain.id;
        end if;
        if handed then
            update dibs.offered set open_until = taker.open_until where offered.worker = taker.worker;
        end if;
    end if;
    return false;
end
$$;
