-- The first phase of a claim in two: locks up to `max_jobs` claimable jobs of a queue that its limits have room for, until
-- the transaction ends, and returns their ids in the order of the queue. The second is dibs.claim_take.
create function dibs.claim_lock(queue text, max_jobs integer, tasks text[] default null) returns uuid[]
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
    chosen uuid[];
    locked uuid[] := '{}';
begin
    if not pg_try_advisory_xact_lock_shared(dibs.gate()) then
        perform pg_advisory_xact_lock_shared(dibs.gate());
    end if;
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
            lane := dibs.next_lane(queue, lane, null);
            exit when lane is null;
        end if;
        behind := null;
        asked := max_jobs - cardinality(locked);
        loop
            if ageing is null then
                found := array(
                    select each from dibs.look(
                        queue, lane, newest_first, tasks, moment, asked, behind,
                        exists (select from unnest(rooms) as room where room.kind = 'queue' and room.used = room.places),
                        array(select room.key from unnest(rooms) as room where room.kind = 'task' and room.used = room.places),
                        array(select room.key from unnest(rooms) as room where room.kind = 'key' and room.used = room.places)
                    ) as each
                );
            else
                found := array(
                    select each from dibs.look_ageing(
                        queue, ageing, tasks, moment, asked, behind,
                        exists (select from unnest(rooms) as room where room.kind = 'queue' and room.used = room.places),
                        array(select room.key from unnest(rooms) as room where room.kind = 'task' and room.used = room.places),
                        array(select room.key from unnest(rooms) as room where room.kind = 'key' and room.used = room.places)
                    ) as each
                );
            end if;
            exit when found = '{}';
            if limited = '{}' and limited_tasks = '{}' then
                chosen := array(select each.id from unnest(found) as each);
            else
                select judged.chosen, judged.rooms into chosen, rooms
                from dibs.admit(
                    queue, found, max_jobs - cardinality(locked), limited, limited_tasks, rooms, may_wait => rooms = '{}'
                ) as judged;
            end if;
            locked := locked || chosen;
            exit when cardinality(locked) >= max_jobs or cardinality(found) < asked;
            behind := found[cardinality(found)];
            -- What is full is left out from here on; to find out what else is, it takes more at once.
            asked := greatest(asked, least(asked * 4, 1000));
        end loop;
        exit when ageing is not null;
    end loop;
    return locked;
end
$$;
