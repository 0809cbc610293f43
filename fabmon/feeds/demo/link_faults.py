"""Faults of switches and their links: one function a kind, which aims it and says what it does."""

from __future__ import annotations

import numpy as np

from fabmon.feeds.demo.conditions import Conditions
from fabmon.feeds.demo.ground import Ground, Planned, on_port, truth
from fabmon.feeds.demo.scenario import Fault, ScenarioError

_COLLIDES, _COLLIDES_AT_LEAST = 1.5, 1.1
"""What is sent over one uplink in a collision, over what it carries."""


def collision(fault: Fault, ground: Ground) -> Planned:
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

    return Planned(fault, on_port(fault, ground, "ecmp_collision", target), apply)


def polarization(fault: Fault, ground: Ground) -> Planned:
    """A leaf's hash tells apart no more than `flows` values: few of its uplinks carry all."""
    plant, leaf = ground.plant, ground.leaf(fault)
    if plant.is_ib:
        raise ScenarioError(
            "polarization: InfiniBand goes by tables and hashes nothing; take a collision, or"
            " topology.kind = leaf-spine or rail"
        )
    buckets = fault.flows or max(2, plant.up // 8)
    used = plant.uplinks(leaf)[np.arange(buckets) * (plant.up // buckets)]
    name = plant.leaf_names[leaf]
    links = [plant.port_id(int(port)) for port in used]

    def apply(conditions: Conditions, _: float) -> None:
        conditions.rules.buckets[leaf] = buckets

    return Planned(fault, (truth(fault, "polarization", name, links, [name]),), apply)


def oversubscription(fault: Fault, ground: Ground) -> Planned:
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
        truth(
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


def degraded_link(fault: Fault, ground: Ground) -> Planned:
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
    truths = on_port(fault, ground, "degraded_link", port, other)
    return Planned(fault, truths, apply, at_once=fault.shown)


def flap(fault: Fault, ground: Ground) -> Planned:
    """A link goes down for `down_s`, every `period_s`."""
    port, last = ground.port(fault), min(fault.until, fault.at + 3600)
    starts = np.arange(fault.at, last, fault.period_s)
    turns = [t for start in starts for t in (start, start + fault.down_s)]

    def apply(conditions: Conditions, now_s: float) -> None:
        if (now_s - fault.at + 1e-9) % fault.period_s < fault.down_s:
            conditions.cut(port)

    other = int(ground.plant.cabling[port])
    truths = on_port(fault, ground, "flapping_link", port, other)
    return Planned(fault, truths, apply, tuple(turns), at_once=True)


def pause_deadlock(fault: Fault, ground: Ground) -> Planned:
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

    return Planned(fault, on_port(fault, ground, "pause_deadlock", *ring), apply, at_once=True)


def error_burst(fault: Fault, ground: Ground) -> Planned:
    """A port receives `rate` damaged packets a second; its link carries a tenth less."""
    port = ground.port(fault)

    def apply(conditions: Conditions, _: float) -> None:
        conditions.errors[port] += fault.rate
        conditions.capacity[int(conditions.rules.peer[port])] *= 0.9

    return Planned(fault, on_port(fault, ground, "error_burst", port), apply, at_once=True)


def saturated_counter(fault: Fault, ground: Ground) -> Planned:
    """An InfiniBand error counter sticks at its maximum."""
    if not ground.plant.is_ib:
        raise ScenarioError("saturated_counter: only InfiniBand's counters stick; use fat-tree")
    port = ground.port(fault)

    def apply(conditions: Conditions, _: float) -> None:
        conditions.pegged.append(port)

    return Planned(fault, on_port(fault, ground, "saturated_counter", port), apply, at_once=True)


def miscabled(fault: Fault, ground: Ground) -> Planned:
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

    return Planned(fault, on_port(fault, ground, "miscabled", one, two, *far), apply, at_once=True)
