-- Everything that is kept of these kinds; see Store.kept. A row without a name if there is nothing: the clock is told always.
create function dibs.kept(kinds text[]) returns table (now timestamptz, kind text, name text, value json)
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
    with clock as materialized (select dibs.clock() as now)
    select clock.now, known.kind, known.name, known.value
    from clock left join dibs.kept_value as known on known.kind = any (kinds)
    order by known.kind, known.name
$$;
