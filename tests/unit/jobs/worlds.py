"""Scenes of the simulated fabric with its three jobs, and queue pairs of a job."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fabmon.analysis.scene import Scene
from fabmon.fabric.flows.queue_pairs import Process, QueuePairs
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import FabricShape, Fault, Scenario
from fabmon.feeds.demo.scenario import Job as DemoJob
from fabmon.session.config import load
from fabmon.session.session import Session

JOBS = (
    DemoJob(name="llama-70b", hosts=4, payload_gb=40, compute_s=2.0),
    DemoJob(name="vit-22b", hosts=2, placement="packed", payload_gb=20, compute_s=1.0),
)


def scene_of_jobs(
    ticks: int,
    *faults: Fault,
    routing: Literal["hash", "spray"] = "spray",
    jobs: tuple[DemoJob, ...] = JOBS,
) -> Scene:
    """A leaf-spine fabric of 8 hosts, 4 at a leaf: job 8801 (anna) has hosts at both leaves, job
    8802 (ben) at one."""
    shape = FabricShape(hosts=8, hosts_per_leaf=4, routing=routing)
    feed = DemoFeed(Scenario(topology=shape, job=jobs, fault=faults))
    pipeline = Session(load(None)).pipeline(feed.hosts)
    for _ in range(ticks - 1):
        pipeline.accept(feed.step())
    return pipeline.accept(feed.step())


def pairs_of(job: str) -> QueuePairs:
    """One queue pair, of a process of a job."""
    return _pairs_of(Process("python3", 4711, job))


def pairs_of_pod(uid: str) -> QueuePairs:
    """One queue pair, of a process in a pod."""
    return _pairs_of(Process("python3", 4711, pod=uid))


def pairs_of_many(jobs: int, head: str = "J") -> QueuePairs:
    """Queue pairs of as many jobs, which a node may invent."""
    return _pairs_of(*(Process("x", number + 1, f"{head}{number}") for number in range(jobs)))


def _pairs_of(*processes: Process) -> QueuePairs:
    one, zero = np.ones(len(processes), np.int64), np.zeros(len(processes), np.int64)
    process = np.arange(len(processes))
    return QueuePairs(("mlx5_0",), zero, one, one, one, one, process, processes, len(processes))
