-- Refuses what dibs.limits would refuse in what most jobs leave out. Arrays of one length; null where nothing was given.
create function dibs.check_extras(
    run_ats timestamptz[], expiries timestamptz[], limit_keys text[], keys text[] default null,
    unique_fors interval[] default null, on_conflicts text[] default null, max_delays interval[] default null
) returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
declare
    wrong text;
begin
    perform dibs.check_names('limit_key', array_remove(limit_keys, null));
    perform dibs.check_times(expiries, 'expires_at');
    select case
        when item.expires_at <= item.run_at then 'expires_at must come after run_at, or the job can never start'
        when item.on_conflict not in ('existing', 'replace', 'debounce')
            then 'on_conflict must be one of existing, replace, debounce, not ' || item.on_conflict
        when item.key is null and (item.unique_for is not null or item.on_conflict <> 'existing')
            then 'unique_for and on_conflict are about jobs of the same key: give a key, too'
        when item.max_delay is not null and coalesce(item.on_conflict, 'existing') <> 'debounce'
            then 'max_delay is for on_conflict debounce: leave it out, or debounce'
        when dibs.exactly(item.unique_for) not between interval '1 microsecond' and interval '87600 hours'
            or dibs.exactly(item.max_delay) not between interval '1 microsecond' and interval '87600 hours'
            then 'unique_for and max_delay must be more than nothing, up to ten years'
    end into wrong
    from unnest(run_ats, expiries, keys, unique_fors, on_conflicts, max_delays)
        as item (run_at, expires_at, key, unique_for, on_conflict, max_delay)
    order by 1 nulls last
    limit 1;
    if wrong is not null then
        raise '%', wrong using errcode = 'check_violation';
    end if;
end
$$;
