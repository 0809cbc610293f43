"""Faults of receivers: too many senders, or a host that takes its data too slowly."""

from __future__ import annotations

import numpy as np

from tests.world.faults.scene import NotPossibleError, Scene, ends_of, some_rails
from tests.world.topology import HASH, SPRAY
from tests.world.transport import ROCE, TCP, State
from tests.world.workloads import Job, start_jobs
from tests.world.world import Part, Program, Sleep, Transfer, path_flow


def incast(scene: Scene) -> None:
    """Many hosts send to one NIC at once: for long, or in bursts of 1.5 s."""
    cluster, topology, rng = scene.cluster, scene.topology, scene.cluster.rng
    receiver = int(rng.choice(scene.hosts))
    rail = int(rng.integers(topology.shape.rails))
    nic = topology.nic(receiver, rail)
    senders = [h for h in range(topology.shape.hosts) if h != receiver]
    chosen = rng.permutation(senders)[: int(rng.integers(4, min(16, len(senders)) + 1))]
    routing = cluster.routing if cluster.routing != HASH else SPRAY
    flows = [
        path_flow(topology, topology.nic(int(h), rail), nic, int(rng.integers(1 << 62)), routing)
        for h in chosen
    ]
    groups = [cluster.world.add_group([flow]) for flow in flows]
    bursts = bool(rng.random() < 0.4)
    last_hop = int(topology.peer[nic])

    def program() -> Program:
        while True:
            seconds = 1.5 if bursts else 20.0
            size = topology.speed[nic] * seconds / len(groups)
            yield Transfer([Part(g, size) for g in groups])
            yield Sleep(float(rng.uniform(1.5, 4.0)) if bursts else 0.01)

    start_jobs(cluster, [Job("incast", (), program, scene.start_s, scene.end_s)])
    truth = scene.truth("incast", ports=[nic, last_hop], nodes=[topology.node_of(nic)])
    truth.affected = {topology.port_id(topology.nic(int(h), rail)) for h in chosen}
    truth.note = "bursts of 1.5 s" if bursts else ""
    scene.judge.excused.add(last_hop)
    scene.judge.inject(truth, lambda state: bool(state.queued[last_hop]))


def slow_receiver(scene: Scene) -> None:
    """A host takes the data of a NIC (or all) out of its buffer too slowly."""
    topology, rng, transport = scene.topology, scene.cluster.rng, scene.cluster.world.transport
    if transport.settings.transport == TCP:
        raise NotPossibleError
    host = int(rng.choice(scene.hosts))
    nics = some_rails(scene, host)
    left = float(rng.uniform(0.15, 0.6))
    sinks = [topology.sink(n) for n in nics]
    was = transport.host_factor[sinks].copy()

    def begin() -> None:
        transport.host_factor[sinks] = left / transport.service[sinks]

    def finish() -> None:
        transport.host_factor[sinks] = was

    scene.during(begin, finish)
    names = ("slow_receiver", *(("pause_storm",) if left < 0.3 else ()))
    truth = scene.truth(
        *names,
        ports=[*nics, *(int(topology.peer[n]) for n in nics)],
        nodes=[topology.node_of(nics[0])],
    )
    scene.seen_by_waiting_only(truth, nics)
    scene.judge.inject(truth, lambda state: bool(state.queued[sinks].any()))


def pause_storm(scene: Scene) -> None:
    """A NIC hangs and pauses its switch all the time."""
    topology, transport = scene.topology, scene.cluster.world.transport
    if transport.settings.transport != ROCE:
        raise NotPossibleError
    host = int(scene.cluster.rng.choice(scene.hosts))
    nic = topology.nic(host, int(scene.cluster.rng.integers(topology.shape.rails)))
    last_hop, sink = int(topology.peer[nic]), topology.sink(nic)
    share = float(scene.cluster.rng.uniform(0.93, 0.999))

    def begin() -> None:
        transport.host_factor[sink] = 0.001
        transport.forced_pause[last_hop] = share

    def finish() -> None:
        transport.host_factor[sink] = 1.0
        transport.forced_pause[last_hop] = 0.0

    scene.during(begin, finish)
    truth = scene.truth(
        "pause_storm", "slow_receiver", ports=[nic, last_hop], nodes=[topology.node_of(nic)]
    )
    scene.judge.excused.add(last_hop)
    scene.judge.inject(truth, lambda state: bool(state.paused[last_hop] > 0.5))


def pause_deadlock(scene: Scene) -> None:
    """Four ports of two leaves and two spines pause each other in a cycle."""
    topology, transport = scene.topology, scene.cluster.world.transport
    if transport.settings.transport != ROCE or not scene.sampler.view.visible:
        raise NotPossibleError
    spines = [n for n, s in topology.switches.items() if s.tier == 2]
    rng = scene.cluster.rng
    one, other = (int(n) for n in rng.permutation(spines)[:2]) if len(spines) > 1 else (0, 0)
    leaves = [
        leaf
        for leaf in range(len(topology.leaves))
        if one != other and all(topology.switches[n].down.get(leaf) for n in (one, other))
    ]
    if len(leaves) < 2:
        raise NotPossibleError
    a, b = (int(n) for n in rng.permutation(leaves)[:2])
    down_b, down_a = topology.switches[one].down[b][0], topology.switches[other].down[a][0]
    up_a = int(topology.peer[topology.switches[one].down[a][0]])
    up_b = int(topology.peer[topology.switches[other].down[b][0]])
    cycle = [up_a, down_b, up_b, down_a]

    def begin() -> None:
        transport.host_factor[cycle] = 1e-5
        transport.forced_pause[cycle] = 0.995

    def finish() -> None:
        transport.host_factor[cycle] = 1.0
        transport.forced_pause[cycle] = 0.0

    scene.during(begin, finish)
    truth = scene.truth(
        "pause_deadlock",
        "pause_storm",
        ports=ends_of(topology, cycle),
        nodes=[topology.node_of(p) for p in cycle],
    )
    truth.inside = True
    scene.judge.excused.update(cycle)
    scene.judge.inject(truth, lambda state: bool(state.paused[cycle].min() > 0.9))


def host_pcie_limit(scene: Scene) -> None:
    """The PCIe link of a NIC retrains at 25 to 60 % of what the NIC needs."""
    cluster, topology, world = scene.cluster, scene.topology, scene.cluster.world
    transport = world.transport
    if transport.settings.transport == TCP:
        raise NotPossibleError
    host = int(cluster.rng.choice(scene.hosts))
    nics = some_rails(scene, host)
    left = float(cluster.rng.uniform(0.25, 0.6))
    narrow = bool(cluster.rng.random() < 0.5)
    links = [link for n in nics for link in (topology.sink(n), topology.source(n))]
    node = scene.sampler.node(topology.node_of(nics[0]))

    def begin() -> None:
        transport.host_factor[links] = left / transport.service[links]
        if narrow:
            node.facts.update({n: {"pcie_width": 4} for n in nics})
            node.hello_due = True

    def finish() -> None:
        transport.host_factor[links] = 1.0
        world.pcie_stalled[nics] = 0
        node.facts.clear()
        node.hello_due = narrow

    scene.during(begin, finish)
    names = ("host_pcie_limit", "slow_receiver", *(("pause_storm",) if left < 0.35 else ()))
    truth = scene.truth(*names, ports=ends_of(topology, nics), nodes=[node.name])
    truth.note = "narrower" if narrow else ""
    if not narrow:
        scene.seen_by_waiting_only(truth, nics)
    array = np.array(nics)

    def shows(state: State) -> bool:
        capacity = left * topology.speed[array]
        busy = (state.load[array] > 0.95 * capacity) | (
            state.load[topology.peer[array]] > 0.95 * capacity
        )
        active = scene.start_s <= world.now <= scene.end_s
        world.pcie_stalled[array] = np.where(busy & active, 100 * (1 - left) * 0.9, 0)
        return bool(busy.any())

    scene.judge.excused.update(int(topology.peer[n]) for n in nics)
    scene.judge.inject(truth, shows)
