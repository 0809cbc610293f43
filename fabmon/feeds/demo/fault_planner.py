"""The faults of a simulated fabric: what they strike, and the truth that findings are scored
against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from fabmon.feeds.demo.fabric_state import FabricState
from fabmon.feeds.demo.flows import Flows
from fabmon.feeds.demo.hardware import Hardware
from fabmon.feeds.demo.routing import Floats, Indices
from fabmon.feeds.demo.scenario import Fault, Job, ScenarioError

_LOADS = 0.5
"""Least `demand` of a job that a fault of one of its hosts slows."""


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, as a finding should report it.

    `cause` is the finding's cause. `subject` is the port (`leaf1/swp33`), node or job; `links` are
    the affected ports (the sending end of a direction, except for errors, which belong to the
    receiving port); `nodes` are the hosts involved. Times are seconds from the start: `since_s` and
    `until_s` (None: to the end) bound the fault, `seen_s` is when it first changed a counter (None:
    not yet; a collision needs traffic).
    """

    cause: str
    subject: str
    links: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    since_s: float
    until_s: float | None
    seen_s: float | None = None


def cross_leaf_demand(hardware: Hardware, jobs: Sequence[Job], flows: Sequence[Flows]) -> Floats:
    """Bytes/s [nics] that each NIC's jobs would send to other leaves if nothing limited them.

    `flows` are those of each job. The busiest NIC of a job sends at its line rate times the job's
    `demand`.
    """
    wants = np.zeros(hardware.nics)
    for job, own in zip(jobs, flows, strict=True):
        src_leaf, dst_leaf = (hardware.leaf_of(hardware.cabling[e]) for e in (own.src, own.dst))
        away = src_leaf != dst_leaf
        busiest = np.bincount(own.src, own.weight, hardware.nics).max()
        share = np.bincount(own.src[away], own.weight[away], hardware.nics) / busiest
        wants += share * job.demand * hardware.speed[: hardware.nics]
    return wants


@dataclass(frozen=True, slots=True)
class FaultPlanner:
    """Chooses what a fault strikes. `hosts` and `flows` are those of each job.

    `cross_leaf_bytes_per_s` is `cross_leaf_demand` of them; it is the same for every fault.
    """

    hardware: Hardware
    jobs: Sequence[Job]
    hosts: Sequence[Sequence[int]]
    flows: Sequence[Flows]
    cross_leaf_bytes_per_s: Floats
    rng: np.random.Generator

    def job(self, name: str) -> int:
        """The number of the job with this name; 0 for an empty name. Raises ScenarioError."""
        for number, job in enumerate(self.jobs):
            if name in ("", job.name):
                return number
        raise ScenarioError(f"fault: no job {name!r}")

    def any_of(self, choices: Indices | Sequence[int]) -> int:
        """One of the choices, at random."""
        return int(self.rng.choice(np.asarray(choices)))

    def busy_host(self, fault: Fault) -> int:
        """The host that a fault names, else a random one whose job loads the fabric, if there is
        one. Raises ScenarioError."""
        if fault.where:
            kind, number = self.hardware.find_node(fault.where.partition("/")[0])
            if kind != "host":
                raise ScenarioError(f"{fault.kind}: {fault.where} is no host")
            return number
        jobs = list(zip(self.jobs, self.hosts, strict=True))
        loads = [host for job, hosts in jobs if job.demand >= _LOADS for host in hosts]
        hosts = loads or [host for each in self.hosts for host in each]
        return self.any_of(hosts or range(self.hardware.training_hosts))

    def nic(self, fault: Fault) -> int:
        """The NIC that a fault names, else a random one of a host that has a job."""
        host = self.busy_host(fault)
        if "/" not in fault.where:
            return host * self.hardware.rails + self.any_of(range(self.hardware.rails))
        return self.hardware.find_port(fault.where)

    def port(self, fault: Fault) -> int:
        """The port that a fault names, else a random uplink in use."""
        if "/" in fault.where:
            return self.hardware.find_port(fault.where)
        return self.any_of(self.hardware.uplinks(self.leaf(fault)))

    def leaf(self, fault: Fault) -> int:
        """The leaf that a fault names, else a random one whose hosts send to other leaves."""
        if fault.where:
            kind, number = self.hardware.find_node(fault.where.partition("/")[0])
            if kind != "leaf":
                raise ScenarioError(f"{fault.kind}: {fault.where} is no leaf")
            return number
        nics = np.flatnonzero(self.cross_leaf_bytes_per_s)
        leaves = np.unique(self.hardware.leaf_of(self.hardware.cabling[nics]))
        return self.any_of(leaves if len(leaves) else range(self.hardware.leaves))

    def senders(self, leaf: int) -> tuple[Indices, Floats]:
        """The NICs of a leaf that send to other leaves, and how much each can send, bytes/s."""
        hardware = self.hardware
        of_leaf = hardware.leaf_of(hardware.cabling[: hardware.nics]) == leaf
        nics = np.flatnonzero(of_leaf & (self.cross_leaf_bytes_per_s > 0))
        return nics, self.cross_leaf_bytes_per_s[nics]

    def peers(self, nic: int, count: int) -> Indices:
        """So many random NICs of the same rail on other hosts."""
        hardware = self.hardware
        others = np.setdiff1d(np.arange(hardware.hosts), [nic // hardware.rails])
        chosen = self.rng.permutation(others)[:count]
        return chosen * hardware.rails + nic % hardware.rails


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A fault whose target is chosen. `apply(state, now_s)` changes the fabric's state.

    `turns` are the times, seconds from the start, at which its effect changes while it is active.
    `at_once` faults change a counter without traffic.
    """

    fault: Fault
    truths: tuple[Truth, ...]
    apply: Callable[[FabricState, float], None]
    turns: tuple[float, ...] = ()
    at_once: bool = False

    def holds(self, now_s: float) -> bool:
        """Whether it is active at this time."""
        return self.fault.at <= now_s < self.fault.until


def truth(
    fault: Fault, subject: str, links: Sequence[str] = (), nodes: Sequence[str] = ()
) -> Truth:
    """The truth of a fault about one subject."""
    until = None if fault.duration is None else fault.until
    return Truth(
        cause=fault.kind,
        subject=subject,
        links=tuple(links),
        nodes=tuple(nodes),
        since_s=fault.at,
        until_s=until,
    )


def on_port(fault: Fault, planner: FaultPlanner, *ports: int) -> tuple[Truth, ...]:
    """The truth of a fault about ports; the first is the subject."""
    names = [planner.hardware.port_id(port) for port in ports]
    nodes = [name.partition("/")[0] for name in names]
    return (truth(fault, names[0], names, nodes),)
