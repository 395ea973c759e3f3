-- The least that a durable queue on SQLite needs, for the limits of enqueue and latency.
CREATE TABLE bare (
    id BLOB NOT NULL PRIMARY KEY, queue TEXT NOT NULL, task TEXT NOT NULL, priority INTEGER NOT NULL, run_at INTEGER NOT NULL,
    args TEXT NOT NULL
);
CREATE INDEX bare_order ON bare (queue, priority, run_at, id);
