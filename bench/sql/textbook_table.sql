-- The textbook layout: one table for a job's whole life, with its state, and a partial index to claim by.
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
create index if not exists job_claim on textbook.job (queue, priority, run_at, id) where state = 'queued';
create index if not exists job_lease on textbook.job (queue, locked_until) where state = 'running';
create index if not exists job_time on textbook.job (state, finished_at);
