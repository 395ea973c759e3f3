-- Which rows of dibs.taken the last sweep has left: those of transactions from `since` on, and those of `besides`.
create function dibs.unswept(out since xid8, out besides xid8[])
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select
        -- A database that was restored from a dump counts its transactions anew.
        case when pg_snapshot_xmax(swept.seen) <= pg_snapshot_xmax(pg_current_snapshot())
            then pg_snapshot_xmax(swept.seen) else '0' end,
        array(select pg_snapshot_xip(swept.seen)) || swept.sweeper
    from (select) as nothing left join dibs.swept on true
$$;
