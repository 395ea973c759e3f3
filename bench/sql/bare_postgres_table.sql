-- The least that a durable queue on PostgreSQL needs, for the limits of enqueue and latency: the columns that a producer
-- says something about, a key, and the order to claim in.
create table public.bare (
    id uuid primary key,
    queue text not null,
    task text not null,
    priority smallint not null default 0,
    run_at timestamptz not null default now(),
    args json not null
);
create index bare_order on public.bare (queue, priority, run_at, id);
