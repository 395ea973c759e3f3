-- Forgets the offers of workers that are gone, so many at a time. One that somebody holds is left for another time.
create function dibs.forget_offers() returns void
language sql volatile
set search_path = pg_catalog, pg_temp
as $$
    delete from dibs.offered where offered.ctid = any (array(
        select offered.ctid from dibs.offered where not dibs.attends(offered.listener) limit 500 for update skip locked
    ))
$$;
