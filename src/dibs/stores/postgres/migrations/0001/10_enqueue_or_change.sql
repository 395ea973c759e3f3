-- What dibs.enqueue_arrays does to a call in which a job may change the one that has its key: first as if none did, then
-- the changes, in the order given. The jobs to be changed are locked in the order of their ids; if one of them is found
-- to be over by then, its key may be free, and all is undone and tried again.
create function dibs.enqueue_or_change(
    ids uuid[], queues text[], tasks text[], args json[], priorities smallint[], run_ats timestamptz[],
    max_attempts smallint[], keys text[], metas json[], wake boolean, expiries timestamptz[], limit_keys text[],
    unique_fors interval[], on_conflicts text[], max_delays interval[]
) returns table (id uuid, created boolean, changed boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    moment timestamptz;
    stand_ins uuid[];
    news boolean[];
    changes boolean[];
    place integer;
    due text[];
begin
    loop
        begin
            select array_agg(stored.id), array_agg(stored.created), array_agg(false)
            into stand_ins, news, changes
            from dibs.enqueue_arrays(
                ids, queues, tasks, args, priorities, run_ats, max_attempts, keys, metas, wake, expiries, limit_keys,
                unique_fors
            ) as stored;
            perform from dibs.job
            where job.id in (
                select item.stand_in from unnest(ids, stand_ins, on_conflicts) as item (id, stand_in, on_conflict)
                where item.stand_in <> item.id and item.on_conflict <> 'existing'
            )
            order by job.id for update;
            moment := dibs.clock();
            for place in
                select item.place
                from unnest(ids, stand_ins, on_conflicts) with ordinality as item (id, stand_in, on_conflict, place)
                where item.stand_in <> item.id and item.on_conflict <> 'existing' order by item.place
            loop
                if exists (select from dibs.job where job.id = stand_ins[place] and job.locked_until is null) then
                    changes[place] := true;
                    if dibs.change_queued(
                        stand_ins[place], tasks[place], args[place], priorities[place], run_ats[place],
                        max_attempts[place], metas[place], expiries[place], limit_keys[place], unique_fors[place],
                        on_conflicts[place], max_delays[place], moment
                    ) then
                        due := due || queues[place];
                    end if;
                elsif not exists (select from dibs.job where job.id = stand_ins[place])
                    and dibs.window_holders(ids[place:place], queues[place:place], keys[place:place], moment) = '{null}' then
                    raise 'a job that was to be changed is over' using errcode = 'DIBS1';
                end if;
            end loop;
            exit;
        exception when sqlstate 'DIBS1' then
            due := null;
        end;
    end loop;
    if wake and due is not null then
        perform dibs.wake(due);
    end if;
    return query select * from unnest(stand_ins, news, changes);
end
$$;
