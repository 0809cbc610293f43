"""Flows: source, destination, share of their group's rate, and 5-tuple.

RoCE flows between two NICs differ only in the UDP source port, which follows from the queue pair
numbers of both ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.flows.queue_pairs import roce_source_port
from fabmon.feeds.demo.hardware import Hardware
from fabmon.feeds.demo.scenario import Job, ScenarioError

Indices = NDArray[np.intp]
Floats = NDArray[np.float64]

_MOST_FLOWS = 200_000


@dataclass(frozen=True, slots=True)
class Flows:
    """Arrays [flows]. `src` and `dst` are NICs; the flows of a `group` move in step.

    `weight` is the flow's rate divided by its group's rate, which is that of one NIC of the group.
    `lqpn` is the queue pair number at `src`, `rqpn` the one at `dst`.
    """

    src: Indices
    dst: Indices
    group: Indices
    weight: Floats
    lqpn: NDArray[np.int64]
    rqpn: NDArray[np.int64]

    @property
    def sport(self) -> NDArray[np.int64]:
        """UDP source ports."""
        return roce_source_port(self.lqpn, self.rqpn)

    def __len__(self) -> int:
        return len(self.src)

    @classmethod
    def joined(cls, parts: Sequence[Flows]) -> Flows:
        """The parts, concatenated."""
        if not parts:
            none = np.empty(0, np.intp)
            return cls(none, none, none, np.empty(0), *np.empty((2, 0), np.int64))
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))


def flows_of(
    hardware: Hardware, job: Job, hosts: Sequence[int], group: int, rng: np.random.Generator
) -> Flows:
    """The flows of a job on these hosts, in the order of its ranks; each rail is independent.

    Raises ScenarioError where there would be more than 200,000.
    """
    pairs = _PATTERNS[job.collective](len(hosts), job.group)
    src, dst, weight = (np.array(each) for each in zip(*pairs, strict=True))
    # Packet spraying uses every path, whatever the queue pair.
    qps = 1 if hardware.routing == "spray" else job.qps
    count = len(pairs) * hardware.rails * qps
    if count > _MOST_FLOWS:
        raise ScenarioError(f"job {job.name}: {count} flows are too many; set group or fewer qps")
    nic = np.array(hosts)[:, None] * hardware.rails + np.arange(hardware.rails)
    shape = (len(pairs), hardware.rails, qps)
    share = np.broadcast_to((weight / qps)[:, None, None], shape)
    if job.spread:
        share = share * _uneven(job.spread, nic.shape, rng)[src][:, :, None]
    made = [
        np.broadcast_to(nic[end][:, :, None], shape).ravel().astype(np.intp) for end in (src, dst)
    ]
    return background(made[0], made[1], group, share.ravel().astype(np.float64), rng)


def storage_flows(
    hardware: Hardware, hosts: Sequence[int], group: int, rng: np.random.Generator, *, write: bool
) -> Flows:
    """A flow between each NIC of these hosts and its rail's NIC of a storage server, in turn.

    None without storage servers.
    """
    servers = hardware.hosts - hardware.training_hosts
    rail = np.arange(hardware.rails)
    number = np.arange(len(hosts) if servers else 0)
    nic = (np.array(hosts)[number][:, None] * hardware.rails + rail).ravel()
    server = hardware.training_hosts + number % max(1, servers)
    far = (server[:, None] * hardware.rails + rail).ravel()
    src, dst = (nic, far) if write else (far, nic)
    return background(src, dst, group, np.ones(len(nic)), rng)


def _uneven(spread: float, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """[hosts, rails] about 1: hosts differ by `spread`, the rails of a host by a third of it."""
    host = 1 + spread * rng.standard_normal((shape[0], 1)).clip(-2, 2)
    rail = 1 + spread / 3 * rng.standard_normal(shape).clip(-2, 2)
    return np.maximum(host * rail, 0.1)


def background(
    src: Indices, dst: Indices, group: int | Indices, weight: Floats, rng: np.random.Generator
) -> Flows:
    """Flows between these NICs, with random queue pair numbers."""
    qpn = rng.integers(64, 1 << 18, (2, len(src)))
    groups = np.broadcast_to(np.asarray(group, np.intp), len(src)).copy()
    return Flows(src, dst, groups, weight, qpn[0], qpn[1])


def share_of_payload(job: Job, hosts: int) -> float:
    """Bytes that a NIC of the job sends in an iteration, divided by the payload of its GPU."""
    within = min(job.group or hosts, hosts)
    if job.collective == "ring":
        return 2 * (hosts - 1) / hosts
    if job.collective == "all-to-all":
        return (within - 1) / within
    return 1.0


_Pairs = list[tuple[int, int, float]]


def _ring(n: int, _: int) -> _Pairs:
    return [(rank, (rank + 1) % n, 1.0) for rank in range(n)]


def _tree(n: int, _: int) -> _Pairs:
    """Two binary trees of half the payload each, the second with the ranks reversed."""
    pairs: _Pairs = []
    for child in range(1, n):
        parent = (child - 1) // 2
        for a, b in ((child, parent), (n - 1 - child, n - 1 - parent)):
            pairs += [(a, b, 0.5), (b, a, 0.5)]
    return pairs


def _all_to_all(n: int, group: int) -> _Pairs:
    size = min(group or n, n)
    return [
        (a, b, 1 / (size - 1))
        for start in range(0, n - n % size, size)
        for a in range(start, start + size)
        for b in range(start, start + size)
        if a != b
    ]


_PATTERNS = {"ring": _ring, "tree": _tree, "all-to-all": _all_to_all}


def placed(hardware: Hardware, jobs: Sequence[Job]) -> list[list[int]]:
    """The hosts of each job, in the order of its ranks. Raises ScenarioError if hosts are
    missing."""
    free = list(range(hardware.training_hosts))
    placed: list[list[int]] = []
    for job in jobs:
        if job.placement == "scattered":
            order = sorted(free, key=lambda host: (host % hardware.per_leaf, host))
        else:
            order = free
        taken = order[: job.hosts or len(order)]
        if len(taken) < max(2, job.hosts):
            raise ScenarioError(f"job {job.name}: {len(free)} hosts are free; it needs 2 or more")
        placed.append(taken)
        free = [host for host in free if host not in set(taken)]
    return placed
