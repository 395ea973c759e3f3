-- The verdicts of a settle call, once it did what it could: accepted if a job was settled like that, just now or before,
-- and nothing happened to it since; else lost. `known` are places of which it is known that they were accepted: what
-- another item of the call did to their job came later.
create function dibs.verdicts(
    ids uuid[], epochs integer[], workers text[], outcomes text[], known integer[] default null
) returns text[]
language sql volatile
as $$
    select array_agg(
        case when item.place = any (known)
            or (item.id, item.epoch, item.worker, item.outcome) in (
                select job.id, job.epoch, job.worker, job.outcome from dibs.job where job.id = item.id
                union all
                select finished.id, finished.epoch, finished.worker, finished.outcome
                from dibs.finished where finished.id = item.id
            )
        then 'accepted' else 'lost' end
        order by item.place
    )
    from unnest(ids, epochs, workers, outcomes) with ordinality as item (id, epoch, worker, outcome, place)
$$;
