-- The id of the last job that is looked at by whoever does not want to look at more than `most` jobs behind `after`; null
-- if that are all, or if an index leads to those that match the filter. See dibs.matching.
create function dibs.floor_of(which jsonb, after uuid, most integer) returns uuid
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
declare
    asked constant text[] := dibs.texts(which -> 'states');
    last constant uuid := coalesce(after, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
    found uuid;
begin
    if which ? 'ids' or which ? 'flows' or asked = array['running'] then
        return null;
    end if;
    if not (which ? 'finished_since' or which ? 'finished_before')
        and (asked is null or asked && array['waiting', 'queued', 'running'])
    then
        found := (select job.id from dibs.job where job.id < last order by job.id desc offset most - 1 limit 1);
    end if;
    if asked is null or 'succeeded' = any (asked) then
        return greatest(found, (
            select finished.id from dibs.finished where finished.id < last order by finished.id desc offset most - 1 limit 1
        ));
    end if;
    return greatest(found, (
        select floor.id
        from unnest(asked) as one (state) cross join lateral (
            select finished.id from dibs.finished
            where finished.state <> 'succeeded' and finished.state = one.state and finished.id < last
            order by finished.id desc offset most - 1 limit 1
        ) as floor
        order by floor.id desc limit 1
    ));
end
$$;
