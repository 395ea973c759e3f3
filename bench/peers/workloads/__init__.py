"""Workloads: what is measured, and what a system must be able to do to take part. Each is defined once."""

from bench.peers.workloads.base import Entry, Figure, Stage, Workload
from bench.peers.workloads.enqueue import Enqueue
from bench.peers.workloads.fleet import IdleFleet, Scaling
from bench.peers.workloads.lasting import Backlog, Growth, Snapshot
from bench.peers.workloads.latency import Latency, LoadedLatency
from bench.peers.workloads.throughput import MixedPriorities, ShortJobs, Throughput

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Throughput(),
        Latency(),
        LoadedLatency(),
        Enqueue(),
        ShortJobs(),
        Snapshot(),
        Backlog(),
        IdleFleet(),
        MixedPriorities(),
        Scaling(),
        Growth(),
    )
}

__all__ = ["WORKLOADS", "Entry", "Figure", "Stage", "Workload"]
