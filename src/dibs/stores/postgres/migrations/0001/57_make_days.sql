-- Makes the partitions of dibs.finished for today and the days ahead, and drops days that are over and empty.
-- Does nothing rather than wait: a partition can be made later, its jobs stand in finished_other until then.
create function dibs.make_days(ahead integer default 3) returns integer
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '200ms'
as $$
declare
    today constant date := (clock_timestamp() at time zone 'UTC')::date;
    day date;
    part text;
    busy boolean;
    changed integer := 0;
begin
    for day in select today + n from generate_series(0, ahead) as n loop
        part := 'finished_' || to_char(day, 'YYYYMMDD');
        continue when to_regclass('dibs.' || part) is not null;
        begin
            execute format(
                'create table dibs.%I partition of dibs.finished for values from (%L) to (%L)', part,
                dibs.first_id_of(day::timestamp at time zone 'UTC'),
                dibs.first_id_of((day + 1)::timestamp at time zone 'UTC')
            );
            changed := changed + 1;
        exception when lock_not_available or check_violation or duplicate_table or unique_violation then
            null;  -- somebody reads it, it has such jobs already, or somebody else was faster
        end;
    end loop;
    for part in
        select relname from pg_class join pg_inherits on inhrelid = pg_class.oid
        where inhparent = 'dibs.finished'::regclass and relname ~ '^finished_\d{8}$'
            and to_date(right(relname, 8), 'YYYYMMDD') < today - 1
    loop
        begin
            -- The lock comes first: whoever moves a job there now is waited for, and then it is not empty.
            execute format('lock table only dibs.finished in share update exclusive mode');
            execute format('lock table dibs.%I in access exclusive mode', part);
            execute format('select exists (select from dibs.%I)', part) into busy;
            if not busy then
                execute format('drop table dibs.%I', part);
                changed := changed + 1;
            end if;
        exception when lock_not_available or undefined_table then
            null;
        end;
    end loop;
    return changed;
end
$$;
