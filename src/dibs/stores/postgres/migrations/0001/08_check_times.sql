-- Refuses times that dibs.limits would refuse. Not every language has years before 1 or after 9999: a worker in one that
-- has not could read no job at all.
create function dibs.check_times(times timestamptz[], what text default 'run_at') returns void
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $$
begin
    if exists (
        select from unnest(times) as given
        where given < timestamptz '1970-01-01 00:00+00' or given >= timestamptz '9999-01-01 00:00+00'
    ) then
        raise '% must lie between the years 1970 and 9998', what using errcode = 'check_violation';
    end if;
end
$$;
