-- Unfinished jobs, and nothing else, so that the table that is claimed from stays small.
--
-- Times are whole microseconds since 1970, ids are the 16 bytes of a UUID, args, meta and errors are JSON text.
-- A job is running exactly while it has a locked_until. "ready" is 1 if the job stands in line: it is queued, or
-- it is running and a claim has seen that its lease expired. "line" is empty for the queue's own line. A job that a limit
-- holds back, and that claims passed too often, stands in another: that of its task and limit key. "flow" and "step" are
-- set for steps of flows alone, "unmet" counts the steps that a waiting one still needs. "limit_key" is empty for none.
-- "counted" is 1 if the job came under a limit when it was claimed, or since while it was running.
-- "report" is what the handler last said, as JSON, and stands last: it can be long, and a claim never reads that far.
-- The states are compared one by one: for three in a list SQLite makes a table in memory each time it checks.
CREATE TABLE dibs_jobs (
    id           BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    queue        TEXT    NOT NULL CHECK (length(queue) BETWEEN 1 AND 200),
    task         TEXT    NOT NULL CHECK (length(task) BETWEEN 1 AND 200),
    state        TEXT    NOT NULL CHECK (state = 'queued' OR state = 'running' OR state = 'waiting'),
    ready        INTEGER NOT NULL CHECK (ready IN (0, 1)),
    line         TEXT    NOT NULL DEFAULT '',
    priority     INTEGER NOT NULL CHECK (priority BETWEEN -32768 AND 32767),
    run_at       INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL CHECK (max_attempts BETWEEN 1 AND 1000),
    epoch        INTEGER NOT NULL DEFAULT 0,
    worker       TEXT,
    locked_until INTEGER CHECK ((locked_until IS NOT NULL) = (state = 'running')),
    cancel_asked INTEGER NOT NULL DEFAULT 0,
    started_at   INTEGER,
    outcome      TEXT,
    key          TEXT    CHECK (length(key) BETWEEN 1 AND 200),
    flow         BLOB,
    step         TEXT,
    unmet        INTEGER NOT NULL DEFAULT 0,
    unique_until INTEGER,
    expires_at   INTEGER,
    limit_key    TEXT    NOT NULL DEFAULT '' CHECK (length(limit_key) <= 200),
    counted      INTEGER NOT NULL DEFAULT 0,
    errors       TEXT    NOT NULL DEFAULT '[]',
    meta         TEXT    NOT NULL DEFAULT '{}',
    args         TEXT    NOT NULL,
    report       TEXT
);

-- The line: every claim walks it from its beginning. The task and the limit key stand in it so that jobs of other tasks,
-- and those that a limit holds back, are passed without being read.
CREATE INDEX dibs_ready ON dibs_jobs (queue, line, priority, run_at, id, task, limit_key) WHERE ready = 1;

-- Expired leases of a queue: the claim (ready = 0) and the sweep (both).
CREATE INDEX dibs_leases ON dibs_jobs (queue, ready, locked_until) WHERE locked_until IS NOT NULL;

-- How many jobs of each limit key, or of a task, are running: of those that come under limits. By the end of the lease, so
-- that what one claim takes, and one settle ends, stands together: by keys it would be all over the index.
CREATE INDEX dibs_counted ON dibs_jobs (queue, locked_until, limit_key, task)
WHERE counted = 1 AND locked_until IS NOT NULL;

-- Jobs that must not start any more from some moment on: the claim and the sweep. And jobs that need others first: counted
-- by queue. Both are rare, and every index costs each job a little, so they share one.
CREATE INDEX dibs_special ON dibs_jobs (state, queue, expires_at, id) WHERE expires_at IS NOT NULL OR state = 'waiting';

-- At most one unfinished job for each key of a queue.
CREATE UNIQUE INDEX dibs_keys ON dibs_jobs (queue, key) WHERE key IS NOT NULL;

-- Steps of a flow that are not finished. Plain jobs are not in it, and no claim has to change it.
CREATE INDEX dibs_steps ON dibs_jobs (flow, step) WHERE flow IS NOT NULL;

-- Finished jobs.
CREATE TABLE dibs_history (
    id           BLOB    NOT NULL PRIMARY KEY,
    queue        TEXT    NOT NULL,
    task         TEXT    NOT NULL,
    state        TEXT    NOT NULL CHECK (state = 'succeeded' OR state = 'failed' OR state = 'cancelled'),
    priority     INTEGER NOT NULL,
    run_at       INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    max_attempts INTEGER NOT NULL,
    epoch        INTEGER NOT NULL,
    worker       TEXT,
    cancel_asked INTEGER NOT NULL,
    started_at   INTEGER,
    finished_at  INTEGER NOT NULL,
    outcome      TEXT,
    key          TEXT,
    flow         BLOB,
    step         TEXT,
    unique_until INTEGER,
    expires_at   INTEGER,
    limit_key    TEXT    NOT NULL DEFAULT '',
    errors       TEXT    NOT NULL,
    meta         TEXT    NOT NULL,
    args         TEXT    NOT NULL,
    result       TEXT,
    report       TEXT
);

-- Pruning takes the oldest of each state; counting reads this index alone.
CREATE INDEX dibs_finished ON dibs_history (state, finished_at, id, queue);

-- Lists of what went wrong, newest id first; what succeeded costs nothing here.
CREATE INDEX dibs_unsuccessful ON dibs_history (state, id) WHERE state <> 'succeeded';

-- Finished jobs whose keys are busy for some time still, or were.
CREATE INDEX dibs_windows ON dibs_history (queue, key, unique_until) WHERE unique_until IS NOT NULL;

-- Steps of a flow that are finished.
CREATE INDEX dibs_past_steps ON dibs_history (flow, state, step) WHERE flow IS NOT NULL;

-- Flows that have jobs, finished or not.
CREATE TABLE dibs_flows (
    id          BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    name        TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    state       TEXT    NOT NULL CHECK (state = 'running' OR state = 'succeeded' OR state = 'failed' OR state = 'cancelled'),
    on_failure  TEXT    NOT NULL CHECK (on_failure IN ('stop', 'continue')),
    created_at  INTEGER NOT NULL,
    finished_at INTEGER,
    meta        TEXT    NOT NULL
) WITHOUT ROWID;

-- Flows of a state, listed by id.
CREATE INDEX dibs_flow_states ON dibs_flows (state, id);

-- Which step needs which, by the ids of their jobs; "name" is that of the needed one, "place" its place in the list.
-- "epoch" is NULL for as long as the needed step stands for itself: its success meets the need, nothing is written and
-- no result is copied for each of many. When that may change it says which success it was; 0: the step was gone by
-- then and its result is null; -1: the need will not be met.
CREATE TABLE dibs_needs (
    step  BLOB    NOT NULL,
    place INTEGER NOT NULL,
    need  BLOB    NOT NULL,
    name  TEXT    NOT NULL,
    epoch INTEGER,
    PRIMARY KEY (step, place)
) WITHOUT ROWID;

-- Who needs a step that just ended.
CREATE INDEX dibs_needed ON dibs_needs (need);

-- Results that were an input of a step and whose own job was requeued or removed since. They go with the flow.
CREATE TABLE dibs_results (
    job    BLOB    NOT NULL,
    epoch  INTEGER NOT NULL,
    flow   BLOB    NOT NULL,
    result TEXT,
    PRIMARY KEY (job, epoch)
) WITHOUT ROWID;

-- The kept results of a flow.
CREATE INDEX dibs_flow_results ON dibs_results (flow);

-- Queues that somebody paused or configured; the others have the defaults.
CREATE TABLE dibs_queues (
    name   TEXT    NOT NULL PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 200),
    paused INTEGER NOT NULL DEFAULT 0,
    "order" TEXT   NOT NULL DEFAULT 'fifo' CHECK ("order" IN ('fifo', 'lifo')),
    ageing INTEGER
) WITHOUT ROWID;

-- Limits: of a queue, of each limit key of a queue, of a task. "starts" in "per" microseconds are a rate.
CREATE TABLE dibs_limits (
    kind        TEXT    NOT NULL CHECK (kind IN ('queue', 'key', 'task')),
    name        TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    rank        INTEGER NOT NULL,
    concurrency INTEGER,
    starts      INTEGER,
    per         INTEGER,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

-- What the rate of a limit has let through: full again from "full_at" on. "key" is empty unless each key has its own.
CREATE TABLE dibs_buckets (
    kind TEXT    NOT NULL,
    name TEXT    NOT NULL,
    key  TEXT    NOT NULL,
    full_at  INTEGER NOT NULL,
    PRIMARY KEY (kind, name, key)
) WITHOUT ROWID;

-- Buckets that are full again are forgotten.
CREATE INDEX dibs_full_buckets ON dibs_buckets (full_at);

-- How many jobs are held under a limit: at least as many, since whoever ends one leaves it as it is. A claim that finds no
-- room by it counts what is running, and puts it right. "key" is empty unless each key has its own.
CREATE TABLE dibs_use (
    kind TEXT    NOT NULL,
    name TEXT    NOT NULL,
    key  TEXT    NOT NULL,
    held INTEGER NOT NULL,
    PRIMARY KEY (kind, name, key)
) WITHOUT ROWID;

-- What is kept that is no job: schedules, for example. JSON by kind and name; a lower rank does not replace a higher one.
CREATE TABLE dibs_kept (
    kind  TEXT    NOT NULL CHECK (length(kind) BETWEEN 1 AND 200),
    name  TEXT    NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    rank  INTEGER NOT NULL,
    value TEXT    NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

-- Claims that were asked to end: what their workers wait for. A sweep drops those that are over.
CREATE TABLE dibs_asked (
    worker TEXT    NOT NULL,
    job    BLOB    NOT NULL,
    epoch  INTEGER NOT NULL,
    PRIMARY KEY (worker, job)
) WITHOUT ROWID;

-- Workers, by their heartbeats.
CREATE TABLE dibs_workers (
    name    TEXT    NOT NULL PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 200),
    seen_at INTEGER NOT NULL,
    info    TEXT    NOT NULL DEFAULT '{}'
) WITHOUT ROWID;
