-- A new UUIDv7, for producers that bring no id of their own. With `nth`, those of one call rise with it.
create function dibs.new_id(nth integer default 0) returns uuid
language sql volatile parallel safe
as $$
    -- 48 bits of milliseconds, version 7, 12 bits of counter, and the second half of a UUIDv4, whose variant is the same.
    select (
        lpad(to_hex(tick >> 12), 12, '0') || '7' || lpad(to_hex(tick & 4095), 3, '0')
        || right(replace(gen_random_uuid()::text, '-', ''), 16)
    )::uuid
    from (select (floor(extract(epoch from clock_timestamp()) * 1000)::bigint << 12) + nth as tick) as now
$$;
