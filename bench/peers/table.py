"""Who takes part: the stores, the settings that are tried, and what each system can do."""

from typing import Literal

import msgspec

Store = Literal["postgres", "redis", "sqlite"]
STORES: tuple[Store, ...] = ("postgres", "redis", "sqlite")

SLOW, BRISK, FAST = 2_000, 10_000, 200_000
"""How many jobs a run has: enough to take seconds, not so many that it takes minutes."""


BATCH = "batch tasks"
"""The setting whose handlers take many jobs in one call."""
UNSYNCED = "no fsync"
"""The setting that trusts SQLite with a commit before it is on the disk, as some do by default."""
APART = (BATCH, UNSYNCED)
"""Settings that stand in a line of their own: they promise something else."""


class Setting(msgspec.Struct, frozen=True):
    """A way to run a system's worker; ``values`` are read by its script."""

    name: str
    values: str = ""
    jobs: int = SLOW
    kinds: tuple[str, ...] = ()
    """Handlers that it can run, if not all that the system can."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """One system on one store.

    ``default`` is what its documentation starts with. ``tuned`` is the best that is known for throughput, ``prompt``
    for latency, where they differ from the default; ``hundred`` runs a hundred jobs at a time.
    """

    name: str
    store: Store
    script: str
    packages: tuple[str, ...] = ()
    """As pip or npm take them; none: it runs in the environment of the benchmark."""
    home: str = ""
    """Peers with the same home share an environment; otherwise it is called like the peer."""
    node: bool = False
    default: Setting
    tuned: Setting | None = None
    prompt: Setting | None = None
    hundred: Setting | None = None
    sender: Setting | None = None
    """For workloads that only enqueue."""
    batch: Setting | None = None
    """Tasks whose handler takes many jobs in one call."""
    unsynced: Setting | None = None
    """Less certain of what was committed, for a comparison with those who are."""
    kinds: tuple[str, ...] = ("async", "plain")
    bulk: bool = True
    """Has a call that enqueues many."""
    priorities: bool = True
    left: tuple[str, ...] = ()
    """How many jobs are not finished: SQL, or commands of Redis whose answers are added up; none: its script says."""
    keeps: str = ""
    """What it keeps of a finished job, and what it does without."""

    @property
    def best(self) -> Setting:
        """The setting for workloads that measure only one."""
        return self.tuned or self.default

    @property
    def is_limit(self) -> bool:
        return self.script.startswith("limit")

    @property
    def environment(self) -> str:
        return self.home or self.name


_LEFT: dict[Store, tuple[str, ...]] = {
    "postgres": ("select count(*) from dibs.job",),
    "redis": (),
    "sqlite": ("select count(*) from dibs_jobs",),
}

_LIMIT_LEFT: dict[Store, tuple[str, ...]] = {
    "postgres": (*_LEFT["postgres"], "select count(*) from public.bare"),
    "redis": ("ZCARD {limit}:order", "ZCARD {limit}:leases"),
    "sqlite": (*_LEFT["sqlite"], "select count(*) from bare"),
}


def _dibs(store: Store) -> Peer:
    return Peer(
        name=f"dibs-{store}",
        store=store,
        script="dibs",
        home="dibs",
        default=Setting("default", jobs=FAST),
        batch=Setting(BATCH, "batch=500", jobs=FAST),
        unsynced=Setting(UNSYNCED, "synchronous=normal", jobs=FAST) if store == "sqlite" else None,
        hundred=Setting("default", "c=100"),
        left=_LEFT[store],
        keeps="history, results, leases and fences",
    )


def _limit(store: Store) -> Peer:
    return Peer(
        name=f"limit-{store}",
        store=store,
        script=f"limit_{store}",
        home="dibs",
        default=Setting("claims", jobs=FAST),
        prompt=Setting("wakes", "bare=1,wakes=1"),
        sender=Setting("bare", "bare=1"),
        hundred=Setting("hundred", "c=100"),
        kinds=("async",),
        priorities=False,
        left=_LIMIT_LEFT[store],
        keeps="the bare driver loop: history, leases and fences; no tasks, no retries, no worker",
    )


OURS = tuple(_dibs(store) for store in STORES)
LIMITS = tuple(_limit(store) for store in STORES)

POSTGRES = (
    Peer(
        name="procrastinate",
        store="postgres",
        script="procrastinate",
        packages=("procrastinate>=3.10", "psycopg[binary]>=3.3", "uvloop"),
        default=Setting("default", "c=1"),
        tuned=Setting("concurrency 30", "c=30"),
        hundred=Setting("concurrency 100", "c=100"),
        left=("select count(*) from procrastinate_jobs where status in ('todo', 'doing')",),
        keeps="history and events",
    ),
    Peer(
        name="pgqueuer",
        store="postgres",
        script="pgqueuer",
        packages=("pgqueuer>=1.6", "asyncpg>=0.31", "uvloop"),
        default=Setting("default", "batch=10", BRISK),
        tuned=Setting("batch 500", "batch=500", FAST),
        # Without the limit it runs more than a hundred at a time; the limit has to be twice the batch.
        hundred=Setting("batch 50, at most 100", "batch=50,c=100"),
        kinds=("async",),
        left=("select count(*) from pgqueuer",),
        keeps="a log of states",
    ),
    Peer(
        name="awa-pg",
        store="postgres",
        script="awa",
        packages=("awa-pg>=0.6.9", "uvloop"),
        default=Setting("10 workers", "c=10", SLOW),
        tuned=Setting("200 workers", "c=200", BRISK),
        hundred=Setting("100 workers", "c=100"),
        kinds=("async",),
        keeps="history for a day; the engine is written in Rust",
    ),
    Peer(
        name="dbos",
        store="postgres",
        script="dbos",
        packages=("dbos>=3.3", "psycopg[binary]>=3.3"),
        default=Setting("default"),
        prompt=Setting("polls every 10 ms", "poll=0.01"),
        hundred=Setting("concurrency 100", "c=100,poll=0.1"),
        priorities=False,
        left=("select count(*) from dbos.workflow_status where status <> 'SUCCESS'",),
        keeps="history, results and inputs of every workflow",
    ),
    Peer(
        name="saq-postgres",
        store="postgres",
        script="saq",
        packages=("saq[redis,postgres,hiredis]>=0.26.4", "psycopg[binary]>=3.3", "uvloop"),
        home="saq",
        default=Setting("default", "c=10"),
        tuned=Setting("concurrency 200", "c=200"),
        hundred=Setting("concurrency 100", "c=100"),
        bulk=False,
        left=("select count(*) from saq_jobs where status <> 'complete'",),
        keeps="finished jobs for ten minutes",
    ),
    Peer(
        name="graphile-worker",
        store="postgres",
        script="graphile_worker.cjs",
        packages=("graphile-worker@>=0.17.3",),
        node=True,
        default=Setting("default", "c=1"),
        tuned=Setting("concurrency 100, local queue 500, batched ends", "c=100,local=500,batch=5", FAST),
        prompt=Setting("concurrency 24", "c=24"),
        hundred=Setting("concurrency 100", "c=100,local=500,batch=5"),
        kinds=("async",),
        left=("select count(*) from graphile_worker._private_jobs",),
        keeps="nothing: a finished job is deleted; no fence",
    ),
    Peer(
        name="pg-boss",
        store="postgres",
        script="pg_boss.cjs",
        packages=("pg-boss@>=10.4",),
        node=True,
        default=Setting("default", "batch=1", 6),
        tuned=Setting("batches of 5,000, 2 workers, polls every 0.5 s", "batch=5000,poll=0.5,workers=2", FAST),
        prompt=Setting("polls every 0.5 s", "batch=1000,poll=0.5"),
        hundred=Setting("batches of 100, polls every 0.5 s", "batch=100,poll=0.5"),
        kinds=("async",),
        left=("select count(*) from pgboss.job where name = 'noop' and state < 'completed'",),
        keeps="history; one handler call a fetch",
    ),
)

REDIS = (
    Peer(
        name="saq-redis",
        store="redis",
        script="saq",
        packages=("saq[redis,postgres,hiredis]>=0.26.4", "psycopg[binary]>=3.3", "uvloop"),
        home="saq",
        default=Setting("default", "c=10", BRISK),
        tuned=Setting("concurrency 200", "c=200", BRISK),
        hundred=Setting("concurrency 100", "c=100"),
        bulk=False,
        priorities=False,
        left=("ZCARD saq:default:incomplete",),
        keeps="finished jobs for ten minutes",
    ),
    Peer(
        name="celery",
        store="redis",
        script="celery",
        packages=("celery[redis,gevent]>=5.6", "hiredis>=3"),
        default=Setting("default: prefork, 2 processes", "pool=prefork,c=2"),
        prompt=Setting("10 threads", "pool=threads,c=10"),
        hundred=Setting("threads, concurrency 100", "pool=threads,c=100"),
        kinds=("plain",),
        bulk=False,
        priorities=False,
        left=("LLEN celery", "HLEN unacked"),
        keeps="nothing; a job counts as done when a worker takes it",
    ),
    Peer(
        name="dramatiq",
        store="redis",
        script="dramatiq",
        packages=("dramatiq[redis]>=2", "hiredis>=3", "gevent"),
        default=Setting("default: 8 threads", "t=8", BRISK),
        tuned=Setting("50 greenlets", "t=50,gevent=1", BRISK, ("plain",)),
        hundred=Setting("100 threads", "t=100"),
        kinds=("plain", "async"),
        bulk=False,
        priorities=False,
        left=("HLEN dramatiq:default.msgs",),
        keeps="nothing",
    ),
    Peer(
        name="rq",
        store="redis",
        script="rq",
        packages=("rq>=2.6", "hiredis>=3"),
        default=Setting("default: a process for each job", jobs=200),
        tuned=Setting("SimpleWorker: no process of its own", "class=SimpleWorker"),
        kinds=("plain", "async"),
        priorities=False,
        left=("LLEN rq:queue:default", "ZCARD rq:wip:default"),
        keeps="finished jobs for 500 s",
    ),
    Peer(
        name="huey-redis",
        store="redis",
        script="huey",
        packages=("huey>=3", "redis>=7", "hiredis>=3", "gevent"),
        home="huey",
        default=Setting("default: 1 thread", "w=1", BRISK),
        tuned=Setting("4 threads", "w=4", BRISK),
        hundred=Setting("100 greenlets", "w=100,k=greenlet"),
        kinds=("plain",),
        bulk=False,
        priorities=False,
        left=("LLEN huey.redis.bench",),
        keeps="nothing: a job leaves the queue before it runs",
    ),
    Peer(
        name="arq",
        store="redis",
        script="arq",
        packages=("arq>=0.26", "hiredis>=2", "uvloop"),
        default=Setting("default", "c=10"),
        tuned=Setting("concurrency 100, polls every 10 ms", "c=100,poll=0.01"),
        hundred=Setting("concurrency 100", "c=100,poll=0.01"),
        kinds=("async",),
        bulk=False,
        priorities=False,
        left=("ZCARD arq:queue",),
        keeps="results for an hour",
    ),
    Peer(
        name="taskiq",
        store="redis",
        script="taskiq",
        packages=("taskiq>=0.12", "taskiq-redis>=1.1", "hiredis>=3", "uvloop"),
        default=Setting("default: a list", "c=100", BRISK),
        tuned=Setting("a stream, read by 500", "stream=1,c=500,prefetch=500,xread=500", BRISK),
        hundred=Setting("concurrency 100", "c=100"),
        bulk=False,
        priorities=False,
        keeps="nothing: a job leaves the list before it runs (a stream keeps it until it has)",
    ),
    Peer(
        name="streaq",
        store="redis",
        script="streaq",
        packages=("streaq>=6", "uvloop"),
        default=Setting("default", "c=16"),
        tuned=Setting("concurrency 32, prefetch 500", "c=32,prefetch=500"),
        hundred=Setting("concurrency 100", "c=100"),
        left=tuple(f"XLEN streaq:default:queues:{level}" for level in ("high", "normal", "low")),
        keeps="results for five minutes",
    ),
    Peer(
        name="bullmq",
        store="redis",
        script="bullmq.cjs",
        packages=("bullmq@>=5", "ioredis@>=5"),
        node=True,
        default=Setting("default", "c=1", SLOW),
        tuned=Setting("concurrency 50, keeps 1,000", "c=50,keep=1000", FAST),
        prompt=Setting("concurrency 200", "c=200"),
        hundred=Setting("concurrency 100", "c=100"),
        kinds=("async",),
        left=("LLEN bull:q:wait", "LLEN bull:q:active", "ZCARD bull:q:prioritized"),
        keeps="finished jobs (all by default)",
    ),
)

SQLITE = (
    Peer(
        name="huey-sqlite",
        store="sqlite",
        script="huey",
        packages=("huey>=3", "redis>=7", "hiredis>=3", "gevent"),
        home="huey",
        default=Setting("default: 1 thread", "w=1", BRISK),
        prompt=Setting("polls every 10 ms", "w=1,d=0.01,m=0.01"),
        hundred=Setting("100 greenlets", "w=100,k=greenlet"),
        kinds=("plain",),
        bulk=False,
        priorities=False,
        left=("select count(*) from task",),
        keeps="nothing: a job leaves the queue before it runs; no fsync",
    ),
    Peer(
        name="litequeue",
        store="sqlite",
        script="litequeue",
        packages=("litequeue>=0.9",),
        default=Setting("a loop, polls every 10 ms"),
        kinds=("plain",),
        priorities=False,
        left=("select count(*) from Queue where status in (0, 1)",),
        keeps="finished jobs; no leases: what a dead worker held stays locked; no fsync",
    ),
)

PEERS: tuple[Peer, ...] = (*OURS, *POSTGRES, *REDIS, *SQLITE)
EVERY: dict[str, Peer] = {peer.name: peer for peer in (*PEERS, *LIMITS)}
