-- What a claim has to know of a job that it may take. `over`: it is not to be started (again), but to be ended.
create type dibs.candidate as (
    id uuid, priority smallint, run_at timestamptz, task text, limit_key text, over boolean
);
