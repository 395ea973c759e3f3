-- The smallest UUIDv7 of an instant: where a day's partition begins.
create function dibs.first_id_of(instant timestamptz) returns uuid
language sql stable parallel safe
as $$
    select (
        lpad(to_hex((extract(epoch from instant) * 1000)::bigint), 12, '0') || '00000000000000000000'
    )::uuid
$$;
