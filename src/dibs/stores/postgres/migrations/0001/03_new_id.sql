-- A new UUIDv7, for producers that bring no id of their own.
create function dibs.new_id() returns uuid
language sql volatile parallel safe
as $$
    -- 48 bits of milliseconds, version 7, and the random bits of a UUIDv4, whose variant is the same.
    select encode(
        set_byte(
            overlay(
                uuid_send(gen_random_uuid())
                placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6
            ),
            6, (get_byte(uuid_send(gen_random_uuid()), 6) & 15) | 112
        ),
        'hex'
    )::uuid
$$;
