-- What a claim hands to a worker.
create type dibs.claimed as (
    id uuid, epoch integer, task text, args json, priority smallint, run_at timestamptz, created_at timestamptz,
    attempt smallint, max_attempts smallint, locked_until timestamptz, key text, flow uuid, step text, meta json, inputs json
);
