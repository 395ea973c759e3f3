-- The tables. Unfinished jobs stand alone in dibs.job, so that its claim index is the index of runnable jobs and
-- nothing else; a claim and a heartbeat write no indexed column, so they are HOT updates. A finished job is moved to
-- dibs.finished, which is partitioned by the day in its id: dropping a day is dropping a table.

create table dibs.migration (
    version integer primary key,
    applied_at timestamptz not null default clock_timestamp()
);

create table dibs.queue (
    name text collate "C" primary key,
    paused boolean not null default false,
    lifo boolean not null default false,
    ageing interval                        -- how long a due job waits to be worth one priority more; null: for ever
);

create table dibs.worker (
    name text collate "C" primary key,
    seen_at timestamptz not null,
    info json not null default '{}'
) with (fillfactor = 50);

-- What is kept that is no job: schedules, for example. A value of a lower rank does not replace one of a higher.
create table dibs.kept_value (
    kind text collate "C",
    name text collate "C",
    rank bigint not null,
    value json not null,
    primary key (kind, name)
);

create table dibs.flow (
    id uuid primary key,
    name text collate "C" not null,
    state text collate "C" not null default 'running',
    on_failure text collate "C" not null default 'stop',
    created_at timestamptz not null,
    finished_at timestamptz,
    flawed boolean not null default false, -- a step failed or was cancelled, once: look at how each ended
    meta json not null default '{}'
) with (fillfactor = 80);

create table dibs.job (
    id uuid primary key,
    run_at timestamptz not null,
    created_at timestamptz not null,
    locked_until timestamptz,              -- not null while running, valid or expired
    started_at timestamptz,
    epoch integer not null default 0,
    unmet integer not null default 0,      -- how many needs are not met yet: waiting while there are any
    priority smallint not null,
    attempts smallint not null default 0,
    max_attempts smallint not null,
    cancel_asked boolean not null default false,
    worker text collate "C",               -- who holds it, or held it last
    outcome text collate "C",              -- how that worker settled it, until anything else happens to it
    queue text collate "C" not null,
    task text collate "C" not null,
    key text collate "C",
    flow uuid,
    step text collate "C",
    args json not null,
    meta json not null,
    errors json,
    report jsonb,                          -- what the handler last said; in no index, so that saying it is a HOT update
    unique_until timestamptz,              -- its key is busy until then, even if it is finished
    expires_at timestamptz,                -- no attempt is started from then on
    limit_key text collate "C",            -- whose job it is, for limits of each key
    needs text[] collate "C",              -- the steps that it needs, by name, and their ids
    need_ids uuid[],
    inputs json                            -- their results, by name; of a waiting step only those that are kept nowhere else
) with (
    -- More than half of each page is left free for the second, longer version that a claim writes of every row in it:
    -- at 50 a tenth of the claims were not HOT, at 40 all are.
    fillfactor = 40,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- Serves dibs.claim: one queue, priority by priority, in the order of the queue.
create index job_claim on dibs.job (queue, priority, run_at, id) where unmet = 0;
-- Serves dibs.enqueue: at most one unfinished job of a key.
create unique index job_key on dibs.job (queue, key) where key is not null;
-- Serves flows: the steps of one.
create index job_flow on dibs.job (flow) where flow is not null;
-- Serves dibs.claim_next_step: steps of every queue, the longest due first.
create index job_step on dibs.job (run_at, id) where flow is not null and unmet = 0;

-- Serves dibs.sweep: what is not to be started any more.
create index job_expiry on dibs.job (expires_at, id) where expires_at is not null and unmet = 0;

-- Where to look for jobs that run: a claim writes one row of all that it takes. Each job that runs is in one of them, but not
-- each that is in one runs: whoever ends a job has nothing to do here. dibs.sweep writes down anew what is left.
create table dibs.taken (
    claimed_in xid8 not null default pg_current_xact_id(),
    jobs uuid[] not null
) with (
    toast_tuple_target = 8160,             -- up to 500 ids stay in the row: a second table costs more than they do
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
alter table dibs.taken alter column jobs set storage external; -- there is nothing in ids to compress
-- Serves dibs.unswept.
create index taken_claimed_in on dibs.taken (claimed_in);

-- What workers that wait would claim: one row a worker, open until it is taken up. Not logged: after a crash nobody waits. An
-- offer that is left, taken up or taken back is a HOT update.
create unlogged table dibs.offered (
    worker text collate "C" primary key,
    listener text collate "C" not null,    -- who hears of the claim; see dibs.attend
    queues text[] collate "C" not null,
    tasks text[] collate "C",              -- those that the worker knows; null: all
    lease interval not null,
    open_until timestamptz
) with (fillfactor = 50);

-- One row: what the last sweep saw, and itself. What was written before by transactions that it saw the end of is gone, so
-- nobody has to read past what is left of it in the table while an old snapshot keeps it there. The row is the lock of sweeps.
create table dibs.swept (
    single boolean primary key default true check (single),
    seen pg_snapshot not null default '1:1:',
    sweeper xid8 not null default '0',
    looked_at timestamptz not null default '-infinity' -- when one last looked at all that there was to do
);
insert into dibs.swept default values;

-- Keys that are busy although their job may be finished: looked at by enqueues of jobs with a key. A row says something
-- only while its job is there; dibs.prune drops those that are over.
create table dibs.key_window (
    queue text collate "C",
    key text collate "C",
    job uuid,
    until timestamptz not null,
    primary key (queue, key, job)
);
-- Serves dibs.prune.
create index key_window_until on dibs.key_window (until);

-- Limits: of a queue, of each key of a queue, of a task. Its row is the lock: whoever claims under a limit holds it, and
-- writes what it has taken to the two tables below.
create table dibs.scope (
    kind text collate "C" check (kind in ('queue', 'key', 'task')),
    name text collate "C",
    rank bigint not null,
    concurrency integer,
    starts integer,                        -- a rate: so many starts in so much time, one and the next so far apart
    per interval,
    apart interval,
    primary key (kind, name)
);

-- Empty. A claim holds it in row share mode, a change of limits in exclusive mode, until their transactions end: so whoever
-- begins to count finds all that was claimed before, and nobody claims without knowing of the limit.
create table dibs.gate ();

-- What is used of a limit, for each key of its own where it is one of keys (else the key is empty).
create table dibs.bucket (
    kind text collate "C",
    name text collate "C",
    key text collate "C",
    slots integer not null default 0,      -- how many jobs dibs.slot has: at least as many as run
    full_at timestamptz,                   -- when the rate will have let in all that it can hold; null: it has
    primary key (kind, name, key)
) with (fillfactor = 50);

-- Which jobs were claimed under a limit of concurrency. One counts while it runs with that epoch and a valid lease;
-- those that do not are dropped when their number comes up to the limit, so nobody who ends a job has to.
-- A claim writes a row for each part of the keys, not one for each job: see dibs.part_of.
create table dibs.slot (
    kind text collate "C" not null,
    name text collate "C" not null,
    part integer not null,
    keys text[] collate "C",               -- one for each job; null where the limit is not one of keys
    jobs uuid[] not null,
    epochs integer[] not null
);
-- Serves claims under a limit that may be full. A job that is claimed again is there twice until the first is dropped.
create index slot_use on dibs.slot (kind, name, part);

-- When a claim last passed a job of a queue that a limit held back; written again half a second later at the earliest. Where
-- none was passed since somebody looked from the beginning, nothing is waiting in front of what was claimed then.
create table dibs.passed (
    queue text collate "C" primary key,
    at timestamptz not null
) with (fillfactor = 50);

-- Which step needs which: read when one succeeds, to find those that it releases. Goes with either of them.
create table dibs.need (
    step uuid not null,
    needs uuid not null,
    primary key (needs, step)
);

create table dibs.finished (
    id uuid primary key,
    run_at timestamptz not null,
    created_at timestamptz not null,
    started_at timestamptz,
    finished_at timestamptz not null,
    epoch integer not null,
    priority smallint not null,
    attempts smallint not null,
    max_attempts smallint not null,
    cancel_asked boolean not null,
    state text collate "C" not null,
    worker text collate "C",
    outcome text collate "C",
    queue text collate "C" not null,
    task text collate "C" not null,
    key text collate "C",
    flow uuid,
    step text collate "C",
    args json not null,
    meta json not null,
    errors json,
    result json,
    report jsonb,
    unique_until timestamptz,
    expires_at timestamptz,
    limit_key text collate "C",
    needs text[] collate "C",
    need_ids uuid[],
    inputs json
) partition by range (id);

-- Ids from days that nobody made a partition for.
create table dibs.finished_other partition of dibs.finished default;

-- Serves lists of what went wrong; what succeeded costs nothing here.
create index finished_unsuccessful on dibs.finished (state, id) where state <> 'succeeded';
-- Serves flows: the steps of one.
create index finished_flow on dibs.finished (flow) where flow is not null;
-- Serves dibs.prune and times in lists: a few bytes for every hundred pages.
create index finished_time on dibs.finished using brin (finished_at);
