"""Faults of hosts and of what they send: one function a kind."""

from __future__ import annotations

import numpy as np

from fabmon.feeds.demo.conditions import Conditions
from fabmon.feeds.demo.flows import background
from fabmon.feeds.demo.ground import Ground, Planned, on_port, truth
from fabmon.feeds.demo.scenario import Fault, ScenarioError


def incast(fault: Fault, ground: Ground) -> Planned:
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
    return Planned(fault, (truth(fault, "incast", name, [name], nodes),), apply)


def pause_storm(fault: Fault, ground: Ground) -> Planned:
    """A NIC sends pause for `share` of the time, whatever it gets."""
    nic = ground.nic(fault)
    share = 0.95 if fault.share is None else fault.share

    def apply(conditions: Conditions, _: float) -> None:
        conditions.storm[nic] = share

    return Planned(fault, on_port(fault, ground, "pause_storm", nic), apply, at_once=True)


def slow_receiver(fault: Fault, ground: Ground) -> Planned:
    """A host takes in no more than `share` of line rate at one NIC, and pauses its leaf."""
    nic = ground.nic(fault)
    share = 0.35 if fault.share is None else fault.share

    def apply(conditions: Conditions, _: float) -> None:
        conditions.accept[nic] = share

    return Planned(fault, on_port(fault, ground, "slow_receiver", nic), apply)


def pcie_limit(fault: Fault, ground: Ground) -> Planned:
    """The bus below a NIC carries `share` of line rate in each direction, and stalls."""
    nic = ground.nic(fault)
    share = 0.4 if fault.share is None else fault.share

    def apply(conditions: Conditions, _: float) -> None:
        conditions.accept[nic] = conditions.send[nic] = share
        conditions.pcie[nic] = True

    return Planned(fault, on_port(fault, ground, "host_pcie_limit", nic), apply)


def straggler(fault: Fault, ground: Ground) -> Planned:
    """A host computes `extra_s` longer than the others of its job, every iteration."""
    host = ground.busy_host(fault)
    jobs = [number for number, hosts in enumerate(ground.hosts) if host in hosts]
    if not jobs:
        raise ScenarioError(f"straggler: no job runs on {ground.plant.host_names[host]}")
    name = ground.plant.host_names[host]

    def apply(conditions: Conditions, _: float) -> None:
        for job in jobs:
            conditions.late[job] = (host, fault.extra_s)

    return Planned(fault, (truth(fault, "straggler", name, (), [name]),), apply)


def uneven_rails(fault: Fault, ground: Ground) -> Planned:
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
    return Planned(fault, (truth(fault, "uneven_rails", name, links, nodes),), apply)


def node_lost(fault: Fault, ground: Ground) -> Planned:
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
    return Planned(fault, (truth(fault, "node_lost", name, (), [name]),), apply, at_once=True)
