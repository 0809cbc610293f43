"""The workloads that a run can have: jobs of random sizes, and the faults that show under them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tests.world import workloads as jobs
from tests.world.topology import HASH, PINNED, SPRAY, STORAGE
from tests.world.workloads import Cluster, Job
from tests.world.world import Program

DAY, DAY_S = "training day", 3600
"""The workload of a run of an hour."""


@dataclass(frozen=True)
class Workload:
    """A workload. `fills`: flows cross the spines at full rate, so that a fabric needs
    the uplinks for them; `heavy`: thousands of flows."""

    make: Callable[[Cluster, list[int]], list[Job]]
    fills: bool = False
    heavy: bool = False
    faults: tuple[str, ...] = ()

    def suits(self, fault: str) -> bool:
        """Whether a fault shows under this workload."""
        return fault in self.faults


def _ring(c: Cluster, hosts: list[int]) -> list[Job]:
    rng = c.rng
    order = jobs.interleaved(c, hosts) if rng.random() < 0.7 else hosts
    step, share = float(np.exp(rng.uniform(np.log(0.3), np.log(20)))), float(rng.uniform(0.3, 0.9))
    apart = float(rng.uniform(0, 0.3)) * step * (1 - share)
    return [Job("job", tuple(hosts), lambda: jobs.ring_all_reduce(c, order, step, share, apart))]


def _fsdp(c: Cluster, hosts: list[int]) -> list[Job]:
    order = jobs.interleaved(c, hosts)
    step, share = float(c.rng.uniform(2, 10)), float(c.rng.uniform(0.4, 0.9))
    return [Job("job", tuple(hosts), lambda: jobs.fsdp(c, order, step, share))]


def _tree(c: Cluster, hosts: list[int]) -> list[Job]:
    c.routing = SPRAY if c.routing == PINNED else c.routing
    step, share = float(c.rng.uniform(1, 8)), float(c.rng.uniform(0.3, 0.8))
    return [Job("job", tuple(hosts), lambda: jobs.tree_all_reduce(c, hosts, step, share))]


def _moe(c: Cluster, hosts: list[int]) -> list[Job]:
    c.routing = SPRAY if c.routing == PINNED else c.routing
    hosts = hosts[:4] + hosts[-4:] if c.rng.random() < 0.5 else hosts[::2]
    step, share = float(c.rng.uniform(1, 8)), float(c.rng.uniform(0.3, 0.7))
    return [Job("job", tuple(hosts), lambda: jobs.all_to_all(c, hosts, step, share))]


def _pipeline(c: Cluster, hosts: list[int]) -> list[Job]:
    every, share = float(c.rng.uniform(0.2, 2)), float(c.rng.uniform(0.2, 0.7))
    return [Job("job", tuple(hosts), lambda: jobs.pipeline(c, hosts, every, share))]


def _server(c: Cluster, hosts: list[int]) -> list[Job]:
    load = float(c.rng.uniform(0.05, 0.3))
    return [Job("job", tuple(hosts), lambda: jobs.parameter_server(c, hosts, load))]


def _inference(c: Cluster, hosts: list[int]) -> list[Job]:
    c.routing = HASH
    load = float(c.rng.uniform(0.05, 0.1))
    return [Job("job", tuple(hosts), lambda: jobs.inference(c, hosts, load))]


def _several(c: Cluster, hosts: list[int]) -> list[Job]:
    """Three jobs on uneven parts of the fabric; one stops, one starts; checkpoints and loading."""
    rng = c.rng
    order = [int(h) for h in rng.permutation(hosts)]
    cuts = sorted(int(n) for n in rng.choice(range(3, len(hosts) - 2), 2, replace=False))
    parts = [order[: cuts[0]], order[cuts[0] : cuts[1]], order[cuts[1] :]]
    found = []
    for number, part in enumerate(parts):
        step, share = float(rng.uniform(0.5, 8)), float(rng.uniform(0.3, 0.8))
        start = 0.0 if number < 2 else float(rng.uniform(20, 35))
        stop = float(rng.uniform(100, 200)) if number == 1 else None
        found.append(
            Job(
                "job" if number == 0 else "other",
                tuple(part),
                lambda part=part, step=step, share=share: jobs.ring_all_reduce(
                    c, part, step, share
                ),  # type: ignore[misc]
                start,
                stop,
            )
        )
    storing = float(rng.uniform(20, 60))
    found.append(Job("store", tuple(hosts), lambda: jobs.checkpoints(c, hosts, storing, 4.0)))
    found.append(Job("load", tuple(hosts), lambda: jobs.data_loading(c, hosts, 0.3, STORAGE)))
    return found


def _elephants(c: Cluster, hosts: list[int]) -> list[Job]:
    """One or two flows at line rate beside mice."""
    rng, topology = c.rng, c.topology
    big = []
    order = jobs.interleaved(c, hosts)
    for number in range(int(rng.integers(1, 3))):
        a, b = order[2 * number], order[2 * number + 1]
        rail = int(rng.integers(topology.shape.rails))
        big.append((topology.nic(a, rail), topology.nic(b, rail)))
    found = [Job("job", tuple(hosts), lambda: jobs.streams(c, big))]
    if rng.random() < 0.6:
        found.append(Job("mice", tuple(hosts), lambda: jobs.inference(c, hosts, 0.01)))
    return found


def _full_leaf(c: Cluster, hosts: list[int]) -> list[Job]:
    """Every NIC sends to one below another leaf at full rate: a leaf at 1:1 is full, and fine."""
    c.qps = 1
    order = jobs.interleaved(c, hosts)
    pairs = [
        (c.topology.nic(a, rail), c.topology.nic(b, rail))
        for a, b in zip(order, order[1:] + order[:1], strict=True)
        for rail in range(c.topology.shape.rails)
    ]
    return [Job("job", tuple(hosts), lambda: jobs.streams(c, pairs))]


def _idle(c: Cluster, hosts: list[int]) -> list[Job]:
    return [Job("job", tuple(hosts), lambda: jobs.console_traffic(c, hosts))]


def _hierarchical(c: Cluster, hosts: list[int]) -> list[Job]:
    order = jobs.interleaved(c, hosts)
    step, share = float(c.rng.uniform(1, 10)), float(c.rng.uniform(0.4, 0.9))
    return [Job("job", tuple(hosts), lambda: jobs.hierarchical_all_reduce(c, order, step, share))]


def _changing(c: Cluster, hosts: list[int]) -> list[Job]:
    """A job stops; hosts join the fabric; another job starts on more hosts."""
    rng = c.rng
    few = hosts[:-2]
    c.joins = {h: float(rng.uniform(30, 80)) for h in hosts[-2:]}
    step, share = float(rng.uniform(0.5, 5)), float(rng.uniform(0.3, 0.8))
    stop, start = float(rng.uniform(90, 130)), float(rng.uniform(140, 170))
    first, second = jobs.interleaved(c, few), jobs.interleaved(c, hosts)
    return [
        Job("job", tuple(few), lambda: jobs.ring_all_reduce(c, first, step, share), 0.0, stop),
        Job(
            "next",
            tuple(hosts),
            partial(_alone, c, partial(jobs.fsdp, c, second, step * 2, share)),
            start,
        ),
        Job("store", tuple(few), lambda: jobs.checkpoints(c, few, 40.0, 5.0)),
    ]


def _day(c: Cluster, hosts: list[int]) -> list[Job]:
    """Hours of training: jobs of other shapes follow each other, with checkpoints, evaluations,
    loading of data, idle time and restarts."""
    rng = c.rng
    # Plans and fixed tables collide when jobs are placed anywhere.
    c.routing = SPRAY
    found = [
        Job("load", tuple(hosts), lambda: jobs.data_loading(c, hosts, 0.2, STORAGE)),
        Job("store", tuple(hosts), lambda: jobs.checkpoints(c, hosts, 300.0, 15.0)),
    ]
    now = float(rng.uniform(5, 60))
    while now < DAY_S:
        size = int(rng.choice([len(hosts), len(hosts) - 2, len(hosts) // 2]))
        part = [int(h) for h in rng.permutation(hosts)[:size]]
        order = jobs.interleaved(c, sorted(part))
        length = float(np.exp(rng.uniform(np.log(120), np.log(1500))))
        step, share = float(np.exp(rng.uniform(np.log(0.5), np.log(25)))), rng.uniform(0.2, 0.9)
        programs: tuple[Callable[[], Program], ...] = (
            partial(jobs.ring_all_reduce, c, order, step, share, step * 0.1),
            partial(jobs.fsdp, c, order, step * 3, share),
            partial(jobs.hierarchical_all_reduce, c, order, step, share),
            partial(jobs.pipeline, c, order[:8], min(step, 2.0), share),
            partial(jobs.inference, c, order, 0.08),
        )
        pick = int(rng.choice(len(programs), p=[0.4, 0.25, 0.15, 0.1, 0.1]))
        chosen = partial(_alone, c, programs[pick])
        found.append(Job("job", tuple(part), chosen, now, now + length))
        now += length + float(rng.exponential(40)) + 2
    return found


def _alone(c: Cluster, program: Callable[[], Program]) -> Program:
    """A job whose paths are planned when no other job runs."""
    c.topology.forget_plan()
    yield from program()


_OF_LINK = ("link_down", "flapping_link", "degraded_link", "error_burst", "node_lost")
_OF_RECEIVER = ("incast", "slow_receiver", "pause_storm", "host_pcie_limit")
_OF_PATHS = (
    "ecmp_collision",
    "polarization",
    "oversubscription",
    "pause_deadlock",
    "saturated_counter",
)
_COLLECTIVE = (*_OF_LINK, *_OF_RECEIVER, *_OF_PATHS, "uneven_rails")

WORKLOADS: dict[str, Workload] = {
    "ring": Workload(_ring, fills=True, faults=(*_COLLECTIVE, "straggler")),
    "fsdp": Workload(_fsdp, fills=True, faults=_COLLECTIVE),
    "hierarchical": Workload(_hierarchical, fills=True, faults=_COLLECTIVE),
    "tree": Workload(_tree, fills=True, faults=(*_OF_LINK, *_OF_RECEIVER)),
    "moe": Workload(
        _moe, fills=True, heavy=True, faults=(*_OF_LINK, *_OF_RECEIVER, *_OF_PATHS, "straggler")
    ),
    "pipeline": Workload(_pipeline, faults=(*_OF_LINK, *_OF_RECEIVER, *_OF_PATHS)),
    "parameter server": Workload(_server, faults=(*_OF_LINK, "incast")),
    "inference": Workload(_inference, faults=(*_OF_LINK, "incast", "pause_storm")),
    "several jobs": Workload(_several, fills=True, faults=(*_OF_LINK, *_OF_RECEIVER, *_OF_PATHS)),
    "changing jobs": Workload(_changing, fills=True, faults=(*_OF_LINK, *_OF_RECEIVER)),
    "elephants": Workload(_elephants, faults=(*_OF_LINK, "incast", "oversubscription")),
    "full leaf": Workload(_full_leaf, fills=True, faults=(*_OF_LINK, *_OF_RECEIVER, *_OF_PATHS)),
    DAY: Workload(_day, fills=True),
    "idle": Workload(_idle, faults=("incast", "oversubscription", "node_lost", "pause_storm")),
}
