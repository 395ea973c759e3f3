-- Sends a claim of a new job to the worker that it was made for.
create function dibs.hand(
    taker dibs.offered, id uuid, queue text, task text, args json, priority smallint, moment timestamptz,
    max_attempts smallint, meta json
) returns void
language sql volatile
as $$
    select pg_notify('dibs_hand_' || taker.listener, json_build_array(
        taker.worker, queue, id, task, args, priority, moment, max_attempts, moment + taker.lease, meta
    )::text)
$$;
