"""What is wrong in a simulated fabric: the answers that findings are scored against."""

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


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong.

    `cause` is called as findings call it. `subject` is the port (`leaf1/swp33`), node or job that
    it is about; `links` are the guilty ports (a direction is that of the port that sends, except
    for errors, which belong to the port that receives), `nodes` the hosts that have a part in it.
    Times are seconds from the start: `since_s` when it begins, `until_s` when it ends (None: to the
    end), `seen_s` when it first made a difference to any counter (None: not yet; a collision needs
    traffic to be one).
    """

    cause: str
    subject: str
    links: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    since_s: float
    until_s: float | None
    seen_s: float | None = None

    def holds(self, now_s: float) -> bool:
        """Whether it is wrong at this time."""
        return self.since_s <= now_s and (self.until_s is None or now_s < self.until_s)


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
        """The number of the job called `name`; the first without a name."""
        for number, job in enumerate(self.jobs):
            if name in ("", job.name):
                return number
        raise ScenarioError(f"fault: no job {name!r}")

    def any_of(self, choices: Indices | Sequence[int]) -> int:
        """One of them, by lot."""
        return int(self.rng.choice(np.asarray(choices)))

    def busy_host(self, fault: Fault) -> int:
        """The host a fault names, else one that has a job."""
        if fault.where:
            kind, number = self.hardware.find_node(fault.where.partition("/")[0])
            if kind != "host":
                raise ScenarioError(f"{fault.kind}: {fault.where} is no host")
            return number
        hosts = [host for each in self.hosts for host in each]
        return self.any_of(hosts or range(self.hardware.hosts))

    def nic(self, fault: Fault) -> int:
        """The NIC a fault names, else one of a host that has a job."""
        host = self.busy_host(fault)
        if "/" not in fault.where:
            return host * self.hardware.rails + self.any_of(range(self.hardware.rails))
        return self.hardware.find_port(fault.where)

    def port(self, fault: Fault) -> int:
        """The port a fault names, else an uplink in use."""
        if "/" in fault.where:
            return self.hardware.find_port(fault.where)
        return self.any_of(self.hardware.uplinks(self.leaf(fault)))

    def leaf(self, fault: Fault) -> int:
        """The leaf a fault names, else one whose hosts talk to other leaves."""
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
        """NICs of the same rail on other hosts, by lot."""
        hardware = self.hardware
        others = np.setdiff1d(np.arange(hardware.hosts), [nic // hardware.rails])
        chosen = self.rng.permutation(others)[:count]
        return chosen * hardware.rails + nic % hardware.rails


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A fault that is aimed. `apply` gets the conditions and the time, seconds from the start.

    `turns` are the times within its life at which its conditions change. `at_once` says that it
    can be seen without any traffic.
    """

    fault: Fault
    truths: tuple[Truth, ...]
    apply: Callable[[FabricState, float], None]
    turns: tuple[float, ...] = ()
    at_once: bool = False

    def holds(self, now_s: float) -> bool:
        """Whether it lasts at this time."""
        return self.fault.at <= now_s < self.fault.until


def truth(
    fault: Fault, cause: str, subject: str, links: Sequence[str] = (), nodes: Sequence[str] = ()
) -> Truth:
    """What is true while a fault lasts."""
    until = None if fault.duration is None else fault.until
    return Truth(
        cause=cause,
        subject=subject,
        links=tuple(links),
        nodes=tuple(nodes),
        since_s=fault.at,
        until_s=until,
    )


def on_port(fault: Fault, planner: FaultPlanner, cause: str, *ports: int) -> tuple[Truth, ...]:
    """The same of ports: the first is its subject."""
    names = [planner.hardware.port_id(port) for port in ports]
    nodes = [name.partition("/")[0] for name in names]
    return (truth(fault, cause, names[0], names, nodes),)
