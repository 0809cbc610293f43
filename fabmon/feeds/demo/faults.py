"""Every kind of fault: how it is aimed, and what it does to the conditions while it lasts.

A kind is one function: it takes the fault and the ground (plant, jobs, lots), and plans it. What
the scenario leaves open is drawn by lot once, so that the truth is known before anything happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fabmon.feeds.demo.conditions import Conditions
from fabmon.feeds.demo.flows import Flows, background
from fabmon.feeds.demo.plant import Plant
from fabmon.feeds.demo.routing import Floats, Indices
from fabmon.feeds.demo.scenario import Fault, Job, ScenarioError
from fabmon.feeds.demo.truth import Truth

_COLLIDES, _COLLIDES_AT_LEAST = 1.5, 1.1
"""What is sent over one uplink in a collision, over what it carries."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a fault is planned on; `hosts` and `flows` are those of each job."""

    plant: Plant
    jobs: Sequence[Job]
    hosts: Sequence[Sequence[int]]
    flows: Sequence[Flows]
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
            kind, number = self.plant.find_node(fault.where.partition("/")[0])
            if kind != "host":
                raise ScenarioError(f"{fault.kind}: {fault.where} is no host")
            return number
        hosts = [host for each in self.hosts for host in each]
        return self.any_of(hosts or range(self.plant.hosts))

    def nic(self, fault: Fault) -> int:
        """The NIC a fault names, else one of a host that has a job."""
        host = self.busy_host(fault)
        if "/" not in fault.where:
            return host * self.plant.rails + self.any_of(range(self.plant.rails))
        return self.plant.find_port(fault.where)

    def port(self, fault: Fault) -> int:
        """The port a fault names, else an uplink in use."""
        if "/" in fault.where:
            return self.plant.find_port(fault.where)
        return self.any_of(self.plant.uplinks(self.leaf(fault)))

    def leaf(self, fault: Fault) -> int:
        """The leaf a fault names, else one whose hosts talk to other leaves."""
        if fault.where:
            kind, number = self.plant.find_node(fault.where.partition("/")[0])
            if kind != "leaf":
                raise ScenarioError(f"{fault.kind}: {fault.where} is no leaf")
            return number
        leaves = [leaf for leaf in range(self.plant.leaves) if len(self.senders(leaf)[0])]
        return self.any_of(leaves or range(self.plant.leaves))

    def senders(self, leaf: int) -> tuple[Indices, Floats]:
        """The NICs of a leaf that send to other leaves, and how much each wants to, bytes/s."""
        plant, peer = self.plant, self.plant.cabling
        wants = np.zeros(plant.nics)
        for job, flows in zip(self.jobs, self.flows, strict=True):
            here = plant.leaf_of(peer[flows.src]) == leaf
            away = here & (plant.leaf_of(peer[flows.dst]) != leaf)
            busiest = np.bincount(flows.src, flows.weight, plant.nics).max()
            share = np.bincount(flows.src[away], flows.weight[away], plant.nics) / busiest
            wants += share * job.demand * plant.speed[: plant.nics]
        nics = np.flatnonzero(wants)
        return nics, wants[nics]

    def peers(self, nic: int, count: int) -> Indices:
        """NICs of the same rail on other hosts, by lot."""
        plant = self.plant
        others = np.setdiff1d(np.arange(plant.hosts), [nic // plant.rails])
        chosen = self.rng.permutation(others)[:count]
        return chosen * plant.rails + nic % plant.rails


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault that is aimed. `apply` gets the conditions and the time, seconds from the start.

    `turns` are the times within its life at which its conditions change. `at_once` says that it
    can be seen without any traffic.
    """

    fault: Fault
    truths: tuple[Truth, ...]
    apply: Callable[[Conditions, float], None]
    turns: tuple[float, ...] = ()
    at_once: bool = False

    def holds(self, now_s: float) -> bool:
        """Whether it lasts at this time."""
        return self.fault.at <= now_s < self.fault.until


def plan(fault: Fault, ground: Ground) -> Planned:
    """Aim a fault. Raises ScenarioError where that is not possible."""
    return _KINDS[fault.kind](fault, ground)


def _truth(
    fault: Fault, cause: str, subject: str, links: Sequence[str] = (), nodes: Sequence[str] = ()
) -> Truth:
    until = None if fault.duration is None else fault.until
    return Truth(
        cause=cause,
        subject=subject,
        links=tuple(links),
        nodes=tuple(nodes),
        since_s=fault.at,
        until_s=until,
    )


def _on_port(fault: Fault, ground: Ground, cause: str, *ports: int) -> tuple[Truth, ...]:
    names = [ground.plant.port_id(port) for port in ports]
    nodes = [name.partition("/")[0] for name in names]
    return (_truth(fault, cause, names[0], names, nodes),)


def _collision(fault: Fault, ground: Ground) -> Planned:
    """`flows` NICs of a leaf send all they have over one uplink; so many that it is too small."""
    leaf = ground.leaf(fault)
    target = ground.port(fault) if "/" in fault.where else ground.any_of(ground.plant.uplinks(leaf))
    senders, wants = ground.senders(leaf)
    order = ground.rng.permutation(len(senders))
    reached = np.cumsum(wants[order]) / ground.plant.speed[target]
    count = fault.flows or int(np.searchsorted(reached, _COLLIDES)) + 1
    count = min(count, len(senders))
    if count < 2 or reached[count - 1] < _COLLIDES_AT_LEAST:
        raise ScenarioError(
            f"collision: what {ground.plant.leaf_names[leaf]} sends to other leaves does not fill"
            " one uplink; place the job scattered, or raise its demand"
        )
    nics = senders[order[:count]]

    def apply(conditions: Conditions, _: float) -> None:
        conditions.rules.pins.append((nics, target))

    return Planned(fault, _on_port(fault, ground, "ecmp_collision", target), apply)


def _polarization(fault: Fault, ground: Ground) -> Planned:
    """A leaf's hash tells apart no more than `flows` values: few of its uplinks carry all."""
    plant, leaf = ground.plant, ground.leaf(fault)
    buckets = fault.flows or max(2, plant.up // 8)
    used = plant.uplinks(leaf)[np.arange(buckets) * (plant.up // buckets)]
    name = plant.leaf_names[leaf]
    links = [plant.port_id(int(port)) for port in used]

    def apply(conditions: Conditions, _: float) -> None:
        conditions.rules.buckets[leaf] = buckets

    return Planned(fault, (_truth(fault, "polarization", name, links, [name]),), apply)


def _oversubscription(fault: Fault, ground: Ground) -> Planned:
    """A job, or all, ask for `share` of line rate: more than the uplinks of their leaves carry."""
    plant = ground.plant
    share = 0.95 if fault.share is None else fault.share
    chosen = [ground.job(fault.job)] if fault.job else list(range(len(ground.jobs)))
    crossing = np.zeros(plant.leaves)
    for number, (job, flows) in enumerate(zip(ground.jobs, ground.flows, strict=True)):
        src, dst = (plant.leaf_of(plant.cabling[ends]) for ends in (flows.src, flows.dst))
        away = src != dst
        busiest = np.bincount(flows.src, flows.weight, plant.nics).max()
        asked = share if number in chosen else job.demand
        crossing += np.bincount(src[away], flows.weight[away], plant.leaves) * asked / busiest
    room = plant.speed[plant.leaf_port(np.arange(plant.leaves), plant.down)] * plant.up
    full = np.flatnonzero(crossing * plant.speed[0] > 1.05 * room)
    if not len(full):
        raise ScenarioError(
            "oversubscription: the uplinks carry all that the jobs can send;"
            " set topology.oversubscription to 2 or more"
        )
    truths = tuple(
        _truth(
            fault,
            "oversubscription",
            plant.leaf_names[leaf],
            [plant.port_id(int(port)) for port in plant.uplinks(leaf)],
            [plant.leaf_names[leaf]],
        )
        for leaf in full.tolist()
    )

    def apply(conditions: Conditions, _: float) -> None:
        conditions.demand.update(dict.fromkeys(chosen, share))

    return Planned(fault, truths, apply)


def _incast(fault: Fault, ground: Ground) -> Planned:
    """`flows` other hosts send to one NIC, each wanting `share` of its line rate."""
    plant, nic = ground.plant, ground.nic(fault)
    senders = ground.peers(nic, fault.flows or 8)
    share = 0.5 if fault.share is None else fault.share
    wants = np.full(len(senders), share) * plant.speed[senders]
    numbers = np.arange(len(senders))
    flows = background(
        senders, np.full(len(senders), nic), numbers, np.ones(len(senders)), ground.rng
    )
    last = int(plant.cabling[nic])

    def apply(conditions: Conditions, _: float) -> None:
        conditions.extra.append((flows, wants))

    nodes = [plant.node_of(nic), *(plant.node_of(int(each)) for each in senders)]
    name = plant.port_id(last)
    return Planned(fault, (_truth(fault, "incast", name, [name], nodes),), apply)


def _degraded_link(fault: Fault, ground: Ground) -> Planned:
    """A link runs at `share` of its speed; unless `shown`, only errors tell."""
    port = ground.port(fault)
    share = 0.25 if fault.share is None else fault.share

    def apply(conditions: Conditions, _: float) -> None:
        ends = [port, int(conditions.rules.peer[port])]
        conditions.capacity[ends] *= share
        if fault.shown:
            conditions.speed[ends] *= share
        else:
            conditions.errors[ends] += 100 * fault.rate

    other = int(ground.plant.cabling[port])
    truths = _on_port(fault, ground, "degraded_link", port, other)
    return Planned(fault, truths, apply, at_once=fault.shown)


def _flap(fault: Fault, ground: Ground) -> Planned:
    """A link goes down for `down_s`, every `period_s`."""
    port, last = ground.port(fault), min(fault.until, fault.at + 3600)
    starts = np.arange(fault.at, last, fault.period_s)
    turns = [t for start in starts for t in (start, start + fault.down_s)]

    def apply(conditions: Conditions, now_s: float) -> None:
        if (now_s - fault.at + 1e-9) % fault.period_s < fault.down_s:
            conditions.cut(port)

    other = int(ground.plant.cabling[port])
    truths = _on_port(fault, ground, "flapping_link", port, other)
    return Planned(fault, truths, apply, tuple(turns), at_once=True)


def _pause_storm(fault: Fault, ground: Ground) -> Planned:
    """A NIC sends pause for `share` of the time, whatever it gets."""
    nic = ground.nic(fault)
    share = 0.95 if fault.share is None else fault.share

    def apply(conditions: Conditions, _: float) -> None:
        conditions.storm[nic] = share

    return Planned(fault, _on_port(fault, ground, "pause_storm", nic), apply, at_once=True)


def _pause_deadlock(fault: Fault, ground: Ground) -> Planned:
    """Two leaves and two spines wait for each other in a ring; nothing moves between them."""
    plant = ground.plant
    if plant.leaves < 2 or plant.spines < 2:
        raise ScenarioError("pause_deadlock: needs two leaves and two spines")
    a, b = (int(each) for each in ground.rng.permutation(plant.leaves)[:2])
    one, two = (int(each) * plant.parallel for each in ground.rng.permutation(plant.spines)[:2])
    peer = plant.cabling
    ring = [
        int(plant.uplinks(a)[one]),
        int(peer[plant.uplinks(b)[one]]),
        int(plant.uplinks(b)[two]),
        int(peer[plant.uplinks(a)[two]]),
    ]

    def apply(conditions: Conditions, _: float) -> None:
        conditions.stuck += ring

    return Planned(fault, _on_port(fault, ground, "pause_deadlock", *ring), apply, at_once=True)


def _slow_receiver(fault: Fault, ground: Ground) -> Planned:
    """A host takes in no more than `share` of line rate at one NIC, and pauses its leaf."""
    nic = ground.nic(fault)
    share = 0.35 if fault.share is None else fault.share

    def apply(conditions: Conditions, _: float) -> None:
        conditions.accept[nic] = share

    return Planned(fault, _on_port(fault, ground, "slow_receiver", nic), apply)


def _pcie_limit(fault: Fault, ground: Ground) -> Planned:
    """The bus below a NIC carries `share` of line rate in each direction, and stalls."""
    nic = ground.nic(fault)
    share = 0.4 if fault.share is None else fault.share

    def apply(conditions: Conditions, _: float) -> None:
        conditions.accept[nic] = conditions.send[nic] = share
        conditions.pcie[nic] = True

    return Planned(fault, _on_port(fault, ground, "host_pcie_limit", nic), apply)


def _straggler(fault: Fault, ground: Ground) -> Planned:
    """A host computes `extra_s` longer than the others of its job, every iteration."""
    host = ground.busy_host(fault)
    jobs = [number for number, hosts in enumerate(ground.hosts) if host in hosts]
    if not jobs:
        raise ScenarioError(f"straggler: no job runs on {ground.plant.host_names[host]}")
    name = ground.plant.host_names[host]

    def apply(conditions: Conditions, _: float) -> None:
        for job in jobs:
            conditions.late[job] = (host, fault.extra_s)

    return Planned(fault, (_truth(fault, "straggler", name, (), [name]),), apply)


def _error_burst(fault: Fault, ground: Ground) -> Planned:
    """A port receives `rate` damaged packets a second; its link carries a tenth less."""
    port = ground.port(fault)

    def apply(conditions: Conditions, _: float) -> None:
        conditions.errors[port] += fault.rate
        conditions.capacity[int(conditions.rules.peer[port])] *= 0.9

    return Planned(fault, _on_port(fault, ground, "error_burst", port), apply, at_once=True)


def _saturated_counter(fault: Fault, ground: Ground) -> Planned:
    """An InfiniBand error counter sticks at its maximum."""
    if not ground.plant.is_ib:
        raise ScenarioError("saturated_counter: only InfiniBand's counters stick; use fat-tree")
    port = ground.port(fault)

    def apply(conditions: Conditions, _: float) -> None:
        conditions.pegged.append(port)

    return Planned(fault, _on_port(fault, ground, "saturated_counter", port), apply, at_once=True)


def _miscabled(fault: Fault, ground: Ground) -> Planned:
    """The far ends of two cables (`where`, `other`) are swapped."""
    plant = ground.plant
    if fault.where and fault.other:
        one, two = plant.find_port(fault.where), plant.find_port(fault.other)
    else:
        if plant.leaves < 2 or plant.spines < 2:
            raise ScenarioError("miscabled: needs two leaves and two spines, or where and other")
        a, b = (int(each) for each in ground.rng.permutation(plant.leaves)[:2])
        spines = ground.rng.permutation(plant.spines)[:2] * plant.parallel
        one, two = int(plant.uplinks(a)[spines[0]]), int(plant.uplinks(b)[spines[1]])
        if "/" in fault.where:
            one = plant.find_port(fault.where)
    far = [int(plant.cabling[each]) for each in (one, two)]
    if len({one, two, *far}) < 4:
        raise ScenarioError("miscabled: where and other must be two different cables")

    def apply(conditions: Conditions, _: float) -> None:
        peer = conditions.rules.peer
        peer[[one, two]] = far[::-1]
        peer[far[::-1]] = [one, two]

    return Planned(fault, _on_port(fault, ground, "miscabled", one, two, *far), apply, at_once=True)


def _uneven_rails(fault: Fault, ground: Ground) -> Planned:
    """A job loads its rails as `shares` say; without them the last quarter gets a fifth."""
    plant, number = ground.plant, ground.job(fault.job)
    few = max(1, plant.rails // 4)
    shares = np.array(fault.shares or [*[1.0] * (plant.rails - few), *[0.2] * few])
    if len(shares) != plant.rails or shares.sum() <= 0:
        raise ScenarioError(f"uneven_rails: needs {plant.rails} shares, not all 0")
    shares *= plant.rails / shares.sum()
    idle = np.flatnonzero(shares < 0.9 * shares.max())
    hosts = ground.hosts[number]
    links = [plant.port_id(host * plant.rails + int(rail)) for host in hosts for rail in idle]
    nodes = [plant.host_names[host] for host in hosts]

    def apply(conditions: Conditions, _: float) -> None:
        conditions.rail_shares[number] = shares

    name = ground.jobs[number].name
    return Planned(fault, (_truth(fault, "uneven_rails", name, links, nodes),), apply)


def _node_lost(fault: Fault, ground: Ground) -> Planned:
    """A host is not heard of; with `crash` its links are down too, and its counters start anew."""
    host = ground.busy_host(fault)
    plant = ground.plant

    def apply(conditions: Conditions, _: float) -> None:
        conditions.silent.add(host)
        if fault.crash:
            conditions.crashed.add(host)
            for nic in range(host * plant.rails, (host + 1) * plant.rails):
                conditions.cut(nic)

    name = plant.host_names[host]
    return Planned(fault, (_truth(fault, "node_lost", name, (), [name]),), apply, at_once=True)


_KINDS: dict[str, Callable[[Fault, Ground], Planned]] = {
    "collision": _collision,
    "polarization": _polarization,
    "oversubscription": _oversubscription,
    "incast": _incast,
    "degraded_link": _degraded_link,
    "flap": _flap,
    "pause_storm": _pause_storm,
    "pause_deadlock": _pause_deadlock,
    "slow_receiver": _slow_receiver,
    "straggler": _straggler,
    "pcie_limit": _pcie_limit,
    "error_burst": _error_burst,
    "saturated_counter": _saturated_counter,
    "miscabled": _miscabled,
    "uneven_rails": _uneven_rails,
    "node_lost": _node_lost,
}
