-- Forgets keys of limits that hold no slot and owe no start: they are like those that were never used. A limit that
-- somebody holds is left for another time.
create function dibs.forget_limits(moment timestamptz) returns void
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    own dibs.scope;
begin
    for own in
        select * from dibs.scope where scope.kind = 'key' order by scope.name for update skip locked
    loop
        perform dibs.drop_slots(array_agg(bucket.kind), array_agg(bucket.name), array_agg(bucket.key), moment)
        from dibs.bucket where bucket.kind = own.kind and bucket.name = own.name and bucket.slots > 0;
        delete from dibs.bucket
        where bucket.kind = own.kind and bucket.name = own.name and bucket.slots = 0
            and (bucket.full_at is null or bucket.full_at <= moment);
    end loop;
end
$$;
