"""Faults of nodes: a slow or lost host, rails that are not used, counters that are stuck."""

from __future__ import annotations

import numpy as np

from tests.world.faults.links import take_down
from tests.world.faults.scene import NotPossibleError, Scene, ends_of
from tests.world.topology import DOWN, NIC, UP
from tests.world.transport import INFINIBAND, State


def straggler(scene: Scene) -> None:
    """A host begins every collective late."""
    cluster, topology, rng = scene.cluster, scene.topology, scene.cluster.rng
    host = int(rng.choice(scene.hosts))
    late = float(rng.uniform(0.8, 4.0))

    def begin() -> None:
        cluster.late_s[host] = late

    def finish() -> None:
        cluster.late_s.pop(host, None)

    scene.during(begin, finish)
    nics = list(topology.hosts[host][: topology.shape.rails])
    truth = scene.truth("straggler", ports=nics, nodes=[topology.node_of(nics[0])])
    mine = np.array(nics)
    others = np.array([topology.nic(h, 0) for h in scene.hosts if h != host])

    def shows(state: State) -> bool:
        busy = state.load[others] > 0.05 * topology.speed[others]
        return bool(busy.mean() > 0.5 and (state.load[mine] < 0.02 * topology.speed[mine]).all())

    scene.judge.inject(truth, shows)


def uneven_rails(scene: Scene) -> None:
    """A job does not use some rails of a host, or of all its hosts, from its start."""
    cluster, topology, rng = scene.cluster, scene.topology, scene.cluster.rng
    rails = topology.shape.rails
    if rails < 2 or cluster.groups:
        raise NotPossibleError
    all_hosts = bool(rng.random() < 0.4)
    hosts = scene.hosts if all_hosts else [int(rng.choice(scene.hosts))]
    unused = rng.permutation(rails)[: int(rng.integers(1, rails // 2 + 1))].tolist()
    for host in hosts:
        cluster.left_out[host] = set(unused)
    scene.start_s, scene.end_s = 0.0, 1e9
    idle = [topology.nic(h, r) for h in hosts for r in unused]
    busy = [topology.nic(h, r) for h in hosts for r in range(rails) if r not in unused]
    truth = scene.truth(
        "uneven_rails",
        ports=idle + busy,
        nodes=[topology.node_of(topology.nic(h, 0)) for h in hosts],
    )
    truth.note = "all hosts" if all_hosts else "one host"
    is_half = 2 * len(unused) == rails > 2
    if all_hosts and (is_half or not scene.sampler.view.visible):
        # NICs that nobody uses may as well be for something else, or for GPUs that no job uses.
        truth.required = False
    array = np.array(busy)
    scene.judge.inject(
        truth, lambda state: bool((state.load[array] > 0.4 * topology.speed[array]).any())
    )


def node_lost(scene: Scene) -> None:
    """A host crashes: it does not answer, its links are down, its job waits for ever."""
    topology, rng = scene.topology, scene.cluster.rng
    host = int(rng.choice(scene.hosts))
    ports = list(topology.hosts[host])
    name = topology.node_of(ports[0])
    crashed = bool(rng.random() < 0.6)
    world = scene.cluster.world
    if crashed:
        for port in ports:
            take_down(scene, port, [(scene.start_s, scene.end_s + 600)])
    world.at(scene.start_s + float(rng.uniform(1, 4)), lambda: scene.sampler.lose(name))
    truth = scene.truth("node_lost", "link_down", ports=ends_of(topology, ports), nodes=[name])
    truth.note = "crashed" if crashed else "does not answer"
    truth.end_s += 600
    scene.judge.inject(truth, lambda _: True)


def saturated_counter(scene: Scene) -> None:
    """xmit_wait is stuck at its maximum on some ports of InfiniBand, as 32 bits soon are."""
    topology, sampler, rng = scene.topology, scene.sampler, scene.cluster.rng
    if scene.cluster.world.transport.settings.transport != INFINIBAND:
        raise NotPossibleError
    if sampler.view.xmit_wait_bits != 32:
        raise NotPossibleError
    fabric = np.flatnonzero(np.isin(topology.role, (NIC, DOWN, UP)))
    chosen = rng.permutation(fabric)[: int(len(fabric) * rng.uniform(0.1, 1.0))].tolist()
    sampler.pinned.update(("ib_tx_wait", port) for port in chosen)
    truth = scene.truth("saturated_counter", ports=chosen, nodes=[])
    truth.start_s, truth.end_s = 0.0, 1e9
    watched = {node.number for node in sampler.nodes}
    truth.nodes = {topology.node_of(p) for p in chosen if topology.node[p] in watched}
    truth.required = bool(truth.nodes)
    scene.judge.inject(truth, lambda _: True)
