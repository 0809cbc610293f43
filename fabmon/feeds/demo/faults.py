"""Every kind of fault: a function that chooses its target and defines its effect.

What the scenario leaves open is drawn at random once, so that the truth is known from the start."""

from __future__ import annotations

import difflib
from collections.abc import Callable

import numpy as np

from fabmon.feeds.demo.fabric_state import FabricState
from fabmon.feeds.demo.fault_planner import FaultPlanner, PlannedFault, on_port, truth
from fabmon.feeds.demo.flows import background
from fabmon.feeds.demo.scenario import Fault, ScenarioError

_COLLIDES, _COLLIDES_AT_LEAST = 1.5, 1.1
"""Load of the uplink in a collision, divided by its capacity: intended, and at least."""


def ecmp_collision(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """`flows` NICs of a leaf send all their traffic over one uplink, more than it carries."""
    leaf = planner.leaf(fault)
    target = (
        planner.port(fault)
        if "/" in fault.where
        else planner.any_of(planner.hardware.uplinks(leaf))
    )
    senders, wants = planner.senders(leaf)
    order = planner.rng.permutation(len(senders))
    reached = np.cumsum(wants[order]) / planner.hardware.speed[target]
    count = fault.flows or int(np.searchsorted(reached, _COLLIDES)) + 1
    count = min(count, len(senders))
    if count < 2 or reached[count - 1] < _COLLIDES_AT_LEAST:
        raise ScenarioError(
            f"ecmp_collision: what {planner.hardware.leaf_names[leaf]} sends to other leaves does"
            " not fill one uplink; place the job scattered, or raise its demand"
        )
    nics = senders[order[:count]]

    def apply(conditions: FabricState, _: float) -> None:
        conditions.rules.pins.append((nics, target))

    return PlannedFault(fault, on_port(fault, planner, target), apply)


def polarization(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """The hash of a leaf has only `flows` distinct values, so few of its uplinks carry all
    traffic."""
    hardware, leaf = planner.hardware, planner.leaf(fault)
    if hardware.is_ib:
        raise ScenarioError(
            "polarization: InfiniBand goes by tables and hashes nothing; take an ecmp_collision,"
            " or topology.kind = leaf-spine or rail"
        )
    buckets = fault.flows or max(2, hardware.up // 8)
    used = hardware.uplinks(leaf)[np.arange(buckets) * (hardware.up // buckets)]
    name = hardware.leaf_names[leaf]
    links = [hardware.port_id(int(port)) for port in used]

    def apply(conditions: FabricState, _: float) -> None:
        conditions.rules.buckets[leaf] = buckets

    return PlannedFault(fault, (truth(fault, name, links, [name]),), apply)


def oversubscription(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """A job, or all jobs, send `share` of line rate: more than the uplinks of their leaves
    carry."""
    hardware = planner.hardware
    share = 0.95 if fault.share is None else fault.share
    chosen = [planner.job(fault.job)] if fault.job else list(range(len(planner.jobs)))
    crossing = np.zeros(hardware.leaves)
    for number, (job, flows) in enumerate(zip(planner.jobs, planner.flows, strict=True)):
        src, dst = (hardware.leaf_of(hardware.cabling[ends]) for ends in (flows.src, flows.dst))
        away = src != dst
        busiest = np.bincount(flows.src, flows.weight, hardware.nics).max()
        asked = share if number in chosen else job.demand
        crossing += np.bincount(src[away], flows.weight[away], hardware.leaves) * asked / busiest
    room = (
        hardware.speed[hardware.leaf_port(np.arange(hardware.leaves), hardware.down)] * hardware.up
    )
    full = np.flatnonzero(crossing * hardware.speed[0] > 1.05 * room)
    if not len(full):
        raise ScenarioError(
            "oversubscription: the uplinks carry everything that the jobs can send;"
            " set topology.oversubscription to 2 or more"
        )
    truths = tuple(
        truth(
            fault,
            hardware.leaf_names[leaf],
            [hardware.port_id(int(port)) for port in hardware.uplinks(leaf)],
            [hardware.leaf_names[leaf]],
        )
        for leaf in full.tolist()
    )

    def apply(conditions: FabricState, _: float) -> None:
        conditions.demand.update(dict.fromkeys(chosen, share))

    return PlannedFault(fault, truths, apply)


def degraded_link(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """A link runs at `share` of its speed; unless `shown`, only its errors show it."""
    port = planner.port(fault)
    share = 0.25 if fault.share is None else fault.share

    def apply(conditions: FabricState, _: float) -> None:
        ends = [port, int(conditions.rules.peer[port])]
        conditions.capacity[ends] *= share
        if fault.shown:
            conditions.speed[ends] *= share
        else:
            conditions.errors[ends] += 100 * fault.rate

    other = int(planner.hardware.cabling[port])
    truths = on_port(fault, planner, port, other)
    return PlannedFault(fault, truths, apply, at_once=fault.shown)


def flapping_link(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """A link goes down for `down_s`, every `period_s`."""
    port, last = planner.port(fault), min(fault.until, fault.at + 3600)
    starts = np.arange(fault.at, last, fault.period_s)
    turns = [t for start in starts for t in (start, start + fault.down_s)]

    def apply(conditions: FabricState, now_s: float) -> None:
        if (now_s - fault.at + 1e-9) % fault.period_s < fault.down_s:
            conditions.cut(port)

    other = int(planner.hardware.cabling[port])
    truths = on_port(fault, planner, port, other)
    return PlannedFault(fault, truths, apply, tuple(turns), at_once=True)


def pause_deadlock(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """Two leaves and two spines pause each other in a cycle; nothing moves between them."""
    hardware = planner.hardware
    if hardware.leaves < 2 or hardware.spines < 2:
        raise ScenarioError("pause_deadlock: needs two leaves and two spines")
    a, b = (int(each) for each in planner.rng.permutation(hardware.leaves)[:2])
    one, two = (
        int(each) * hardware.parallel for each in planner.rng.permutation(hardware.spines)[:2]
    )
    peer = hardware.cabling
    ring = [
        int(hardware.uplinks(a)[one]),
        int(peer[hardware.uplinks(b)[one]]),
        int(hardware.uplinks(b)[two]),
        int(peer[hardware.uplinks(a)[two]]),
    ]

    def apply(conditions: FabricState, _: float) -> None:
        conditions.stuck += ring

    return PlannedFault(fault, on_port(fault, planner, *ring), apply, at_once=True)


def error_burst(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """A port receives `rate` damaged packets a second; its link carries a tenth less."""
    port = planner.port(fault)

    def apply(conditions: FabricState, _: float) -> None:
        conditions.errors[port] += fault.rate
        conditions.capacity[int(conditions.rules.peer[port])] *= 0.9

    return PlannedFault(fault, on_port(fault, planner, port), apply, at_once=True)


def saturated_counter(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """An InfiniBand error counter is saturated."""
    if not planner.hardware.is_ib:
        raise ScenarioError("saturated_counter: only InfiniBand counters saturate; use fat-tree")
    port = planner.port(fault)

    def apply(conditions: FabricState, _: float) -> None:
        conditions.pegged.append(port)

    return PlannedFault(fault, on_port(fault, planner, port), apply, at_once=True)


def miscabled(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """The far ends of two cables (`where`, `other`) are swapped."""
    hardware = planner.hardware
    if fault.where and fault.other:
        one, two = hardware.find_port(fault.where), hardware.find_port(fault.other)
    else:
        if hardware.leaves < 2 or hardware.spines < 2:
            raise ScenarioError("miscabled: needs two leaves and two spines, or where and other")
        a, b = (int(each) for each in planner.rng.permutation(hardware.leaves)[:2])
        spines = planner.rng.permutation(hardware.spines)[:2] * hardware.parallel
        one, two = int(hardware.uplinks(a)[spines[0]]), int(hardware.uplinks(b)[spines[1]])
        if "/" in fault.where:
            one = hardware.find_port(fault.where)
    far = [int(hardware.cabling[each]) for each in (one, two)]
    if len({one, two, *far}) < 4:
        raise ScenarioError("miscabled: where and other must be two different cables")

    def apply(conditions: FabricState, _: float) -> None:
        peer = conditions.rules.peer
        peer[[one, two]] = far[::-1]
        peer[far[::-1]] = [one, two]

    return PlannedFault(fault, on_port(fault, planner, one, two, *far), apply, at_once=True)


def incast(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """`flows` other hosts send to one NIC, each wanting `share` of its line rate."""
    hardware, nic = planner.hardware, planner.nic(fault)
    senders = planner.peers(nic, fault.flows or 8)
    share = 0.5 if fault.share is None else fault.share
    wants = np.full(len(senders), share) * hardware.speed[senders]
    numbers = np.arange(len(senders))
    flows = background(
        senders, np.full(len(senders), nic), numbers, np.ones(len(senders)), planner.rng
    )
    last = int(hardware.cabling[nic])

    def apply(conditions: FabricState, _: float) -> None:
        conditions.extra.append((flows, wants))

    nodes = [hardware.node_of(nic), *(hardware.node_of(int(each)) for each in senders)]
    name = hardware.port_id(last)
    return PlannedFault(fault, (truth(fault, name, [name], nodes),), apply)


def pause_storm(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """A NIC sends pause for `share` of the time, whatever it receives."""
    nic = planner.nic(fault)
    share = 0.95 if fault.share is None else fault.share

    def apply(conditions: FabricState, _: float) -> None:
        conditions.storm[nic] = share

    return PlannedFault(fault, on_port(fault, planner, nic), apply, at_once=True)


def slow_receiver(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """A host accepts only `share` of line rate at one NIC, and pauses its leaf."""
    nic = planner.nic(fault)
    share = 0.35 if fault.share is None else fault.share

    def apply(conditions: FabricState, _: float) -> None:
        conditions.accept[nic] = share

    return PlannedFault(fault, on_port(fault, planner, nic), apply)


def host_pcie_limit(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """The PCIe link of a NIC carries `share` of line rate in each direction, and stalls."""
    nic = planner.nic(fault)
    share = 0.4 if fault.share is None else fault.share

    def apply(conditions: FabricState, _: float) -> None:
        conditions.accept[nic] = conditions.send[nic] = share
        conditions.pcie[nic] = True

    return PlannedFault(fault, on_port(fault, planner, nic), apply)


def straggler(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """A host computes `extra_s` longer than the others of its job, every iteration."""
    host = planner.busy_host(fault)
    jobs = [number for number, hosts in enumerate(planner.hosts) if host in hosts]
    if not jobs:
        raise ScenarioError(f"straggler: no job runs on {planner.hardware.host_names[host]}")
    name = planner.hardware.host_names[host]

    def apply(conditions: FabricState, _: float) -> None:
        for job in jobs:
            conditions.late[job] = (host, fault.extra_s)

    return PlannedFault(fault, (truth(fault, name, (), [name]),), apply)


def uneven_rails(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """A job loads its rails by `shares`; by default the last quarter of the rails carries a
    fifth."""
    hardware, number = planner.hardware, planner.job(fault.job)
    few = max(1, hardware.rails // 4)
    shares = np.array(fault.shares or [*[1.0] * (hardware.rails - few), *[0.2] * few])
    if len(shares) != hardware.rails or shares.sum() <= 0:
        raise ScenarioError(f"uneven_rails: needs {hardware.rails} shares, not all 0")
    shares *= hardware.rails / shares.sum()
    idle = np.flatnonzero(shares < 0.9 * shares.max())
    hosts = planner.hosts[number]
    links = [hardware.port_id(host * hardware.rails + int(rail)) for host in hosts for rail in idle]
    nodes = [hardware.host_names[host] for host in hosts]

    def apply(conditions: FabricState, _: float) -> None:
        conditions.rail_shares[number] = shares

    name = planner.jobs[number].name
    return PlannedFault(fault, (truth(fault, name, links, nodes),), apply)


def node_lost(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """A host stops reporting; with `crash` its links go down too, and its counters restart at 0."""
    host = planner.busy_host(fault)
    hardware = planner.hardware

    def apply(conditions: FabricState, _: float) -> None:
        conditions.silent.add(host)
        if fault.crash:
            conditions.crashed.add(host)
            for nic in range(host * hardware.rails, (host + 1) * hardware.rails):
                conditions.cut(nic)

    name = hardware.host_names[host]
    return PlannedFault(fault, (truth(fault, name, (), [name]),), apply, at_once=True)


_KINDS: dict[str, Callable[[Fault, FaultPlanner], PlannedFault]] = {
    plan_kind.__name__: plan_kind
    for plan_kind in (
        ecmp_collision,
        polarization,
        oversubscription,
        incast,
        degraded_link,
        flapping_link,
        pause_storm,
        pause_deadlock,
        slow_receiver,
        straggler,
        host_pcie_limit,
        error_burst,
        saturated_counter,
        miscabled,
        uneven_rails,
        node_lost,
    )
}
"""Every kind of fault: a function with the name of the cause that must be found. It aims the fault;
what the scenario leaves open is drawn from the seed once, so that the truth is known in advance."""

KINDS = tuple(_KINDS)


def plan(fault: Fault, planner: FaultPlanner) -> PlannedFault:
    """Aim a fault. Raises ScenarioError where that is not possible, and for an unknown kind."""
    if fault.kind not in _KINDS:
        near = difflib.get_close_matches(fault.kind, KINDS, n=1)
        hint = f"; did you mean `{near[0]}`?" if near else f"; one of {', '.join(KINDS)}"
        raise ScenarioError(f"fault `{fault.kind}`: unknown kind{hint}")
    return _KINDS[fault.kind](fault, planner)
