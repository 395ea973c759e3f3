-- The textbook layout: one table for a job's whole life, with its state, and a partial index to claim by. Every other
-- index serves something that dibs promises too.
create schema if not exists textbook;
create table if not exists textbook.job (
    id uuid primary key,
    run_at timestamptz not null default now(),
    created_at timestamptz not null default now(),
    locked_until timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    epoch integer not null default 0,
    priority smallint not null default 0,
    attempts smallint not null default 0,
    max_attempts smallint not null default 5,
    cancel_asked boolean not null default false,
    state text collate "C" not null default 'queued',
    worker text collate "C",
    queue text collate "C" not null,
    task text collate "C" not null,
    key text collate "C",
    args json not null,
    meta json not null default '{}',
    errors json,
    result json
);
-- What to claim.
create index if not exists job_claim on textbook.job (queue, priority, run_at, id) where state = 'queued';
-- Expired leases.
create index if not exists job_lease on textbook.job (queue, locked_until) where state = 'running';
-- At most one unfinished job of a key.
create unique index if not exists job_key on textbook.job (queue, key)
    where key is not null and state in ('queued', 'running');
-- What ended how and when: to prune it, and to list what went wrong.
create index if not exists job_ended on textbook.job (state, finished_at) where finished_at is not null;
