-- The first phase of a claim in two: locks up to `max_jobs` claimable jobs of a queue that its limits have room for, until
-- the transaction ends, and returns their ids in the order of the queue. The second is dibs.claim_take.
--
-- after_…: places in lanes that the caller has claimed up to. When limits hold back what stands first in a lane, the look
-- goes on from that place, and what lies between is left out unless there are too few behind it and `thorough` is set. Call it
-- with `may_wait` only once in a transaction: see dibs.lock_scopes.
create function dibs.claim_lock(
    queue text, max_jobs integer, tasks text[] default null, after_priority smallint[] default null,
    after_run_at timestamptz[] default null, after_id uuid[] default null, thorough boolean default true,
    may_wait boolean default true
) returns uuid[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    moment timestamptz := dibs.clock();
    newest_first boolean;
    stopped boolean;
    ageing interval;
    limited text[];
    limited_tasks text[];
    rooms dibs.room[] := '{}';
    lane integer := -32769;
    asked integer;
    found dibs.candidate[];
    behind dibs.candidate;
    -- The caller's place in the lane; where the look has left off to go on from there; and, when it comes back to that,
    -- where it ends.
    spot integer;
    place dibs.candidate;
    gap dibs.candidate;
    until dibs.candidate;
    shut boolean;
    full_tasks text[];
    full_keys text[];
    chosen uuid[];
    passed boolean := false;
    locked uuid[] := '{}';
begin
    lock table dibs.gate in row share mode;
    select
        coalesce(queue.lifo, false), coalesce(queue.paused, false), queue.ageing,
        array(select scope.kind from dibs.scope where scope.kind in ('key', 'queue') and scope.name = claim_lock.queue),
        array(
            select scope.name from dibs.scope
            where scope.kind = 'task' and (tasks is null or scope.name = any (tasks))
        )
    into newest_first, stopped, ageing, limited, limited_tasks
    from (select) as nothing left join dibs.queue on queue.name = claim_lock.queue;
    if limited <> '{}' and not stopped then
        -- Before any job is locked: whoever holds them has to be waited for.
        perform dibs.lock_scopes(queue, '{}', may_wait => true);
        moment := dibs.clock();
    end if;
    while not stopped and cardinality(locked) < max_jobs loop
        if ageing is null then
            lane := dibs.next_lane(queue, lane, after_priority);
            exit when lane is null;
        end if;
        asked := max_jobs - cardinality(locked);
        spot := case when ageing is null and not newest_first then array_position(after_priority, lane::smallint) end;
        if spot is not null then
            place := row(after_id[spot], lane, after_run_at[spot], null, null, null);
            asked := greatest(asked, 100);
        end if;
        behind := null;
        until := null;
        gap := null;
        loop
            -- One that was not counted to the end may have more room than it seems: what comes next is judged by it.
            shut := exists (
                select from unnest(rooms) as room where room.kind = 'queue' and room.used = room.places and room.sure
            );
            full_tasks := array(
                select room.key from unnest(rooms) as room
                where room.kind = 'task' and room.used = room.places and room.sure
            );
            full_keys := array(
                select room.key from unnest(rooms) as room
                where room.kind = 'key' and room.used = room.places and room.sure
            );
            if ageing is null then
                found := array(select each from dibs.look(
                    queue, lane, newest_first, tasks, moment, asked, behind, shut, full_tasks, full_keys, until
                ) as each);
            else
                found := array(select each from dibs.look_ageing(
                    queue, ageing, tasks, moment, asked, behind, shut, full_tasks, full_keys
                ) as each);
            end if;
            if limited = '{}' and limited_tasks = '{}' then
                locked := locked || array(select each.id from unnest(found) as each);
            elsif found <> '{}' then
                select judged.chosen, judged.rooms, passed or judged.passed into chosen, rooms, passed
                from dibs.admit(
                    queue, found, max_jobs - cardinality(locked), limited, limited_tasks, rooms,
                    claim_lock.may_wait and rooms = '{}'
                ) as judged;
                locked := locked || chosen;
            end if;
            exit when cardinality(locked) >= max_jobs;
            if cardinality(found) = asked then
                behind := found[cardinality(found)];
                if spot is not null and gap.id is null and (place.run_at, place.id) > (behind.run_at, behind.id) then
                    gap := behind;
                    behind := place;
                end if;
            else
                exit when gap.id is null or until.id is not null or not thorough; -- a row with a null in it is not "not null"
                behind := gap;
                until := place;
            end if;
            -- What is full is left out from here on; to find out what else is, it takes more at once.
            asked := greatest(asked, least(asked * 4, 1000));
        end loop;
        exit when ageing is not null;
    end loop;
    -- What has no room any more was left out without being looked at.
    if passed or exists (select from unnest(rooms) as room where room.used = room.places and room.sure) then
        perform dibs.note_passed(queue, moment);
    end if;
    return locked;
end
$$;
