-- Renews leases and records that the worker was seen; see Store.heartbeat. `reports`, if given, has for each id what its
-- handler said (see dibs.cleaned_report), or null to keep what is known. Returns, in order, held, cancel or lost.
create function dibs.heartbeat(
    worker text, ids uuid[] default '{}', epochs integer[] default '{}', lease interval default '30 seconds',
    info json default null, reports jsonb[] default null
) returns text[]
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := dibs.clock();
    of_steps boolean;
    pulses text[];
begin
    if coalesce(worker, '') = '' or lease is null or lease not between '1 second' and '24 hours' then
        raise 'a % needs a worker and a lease from 1 second to 24 hours', 'heartbeat' using errcode = 'invalid_parameter_value';
    end if;
    if cardinality(reports) <> cardinality(ids) then
        raise 'a heartbeat takes a report or null for each id' using errcode = 'invalid_parameter_value';
    end if;
    insert into dibs.worker as known (name, seen_at, info)
    values (heartbeat.worker, moment, coalesce(heartbeat.info, '{}'))
    on conflict (name) do update
    set seen_at = moment, info = coalesce(heartbeat.info, known.info);

    -- Steps come after all others: that is the order in which a settle locks them.
    foreach of_steps in array array[false, true] loop
        with item as materialized (
            select * from unnest(ids, epochs, reports) with ordinality as item (id, epoch, report, place)
            order by item.id
        ), held as (
            update dibs.job set
                locked_until = greatest(job.locked_until, moment + lease),
                report = case when item.report is null then job.report
                    else dibs.cleaned_report(item.report, job.attempts, moment) end
            from item
            where job.id = any (array[item.id]) and job.epoch = item.epoch and job.worker = heartbeat.worker
                -- By the clock of this instant: a claim that found the lease expired has given away its slot.
                and job.locked_until > dibs.clock() and (job.flow is not null) = of_steps
            returning job.id, job.epoch, job.cancel_asked
        )
        select array_agg(
            case when held.id is null then coalesce(pulses[item.place], 'lost')
                when held.cancel_asked then 'cancel' else 'held' end
            order by item.place
        )
        into pulses
        from item left join held on held.id = item.id and held.epoch = item.epoch;
        exit when pulses is null or 'lost' <> all (pulses);
    end loop;
    return coalesce(pulses, '{}');
end
$$;
