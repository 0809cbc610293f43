"""Faults: each changes one thing in the model for some time, and says what is then true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.world.sampling import Sampler
from tests.world.topology import NIC, UP, Topology, ends
from tests.world.transport import TCP, State
from tests.world.truth import Judge, Truth
from tests.world.workloads import Cluster, Job, run
from tests.world.world import Part, Program, Sleep, Transfer, path_flow


@dataclass
class Scene:
    """What a fault acts on. `hosts` are those of the job."""

    cluster: Cluster
    judge: Judge
    sampler: Sampler
    hosts: list[int]
    start_s: float
    end_s: float

    @property
    def topology(self) -> Topology:
        """The hardware."""
        return self.cluster.topology

    def truth(self, cause: str, *more: str, ports: list[int], nodes: list[str]) -> Truth:
        """A new truth about ports and nodes."""
        truth = Truth(cause, frozenset((cause, *more)), self.start_s, self.end_s)
        truth.ports = {self.topology.port_id(p) for p in ports}
        truth.nodes = set(nodes)
        truth.required = True
        return truth

    def during(self, begin: Callable[[], None], finish: Callable[[], None]) -> None:
        """Call `begin` and `finish` at the fault's start and end."""
        world = self.cluster.world

        def change(do: Callable[[], None]) -> Callable[[], None]:
            def changed() -> None:
                do()
                world.dirty = True

            return changed

        world.at(self.start_s, change(begin))
        world.at(self.end_s, change(finish))


class NotPossibleError(Exception):
    """This fabric cannot have that fault."""


def ecmp_collision(scene: Scene) -> None:
    """Two or more flows from below one leaf are hashed onto one uplink. The truth about it is the
    model's: Judge observes the overload."""
    cluster, topology, rng = scene.cluster, scene.topology, scene.cluster.rng
    table = cluster.world.table
    crossing: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for group in cluster.groups:
        for place, flow in enumerate(table.flows_of(group)):
            first = next((h.link for h in flow.hops if _is_uplink(topology, h.link)), -1)
            if first >= 0:
                node = int(topology.node[first])
                crossing.setdefault((node, 0), []).append((group, place))
    rich = [each for each in crossing.values() if len({g for g, _ in each}) > 0 and len(each) > 1]
    if not rich:
        raise NotPossibleError
    chosen = rich[int(rng.integers(len(rich)))]
    picks = rng.permutation(len(chosen))[: int(rng.integers(2, 4)) * max(1, cluster.qps)]
    before: dict[int, list] = {}  # type: ignore[type-arg]

    def collide() -> None:
        target: int | None = None
        for pick in picks:
            group, place = chosen[pick]
            flows = table.flows_of(group)
            before.setdefault(group, list(flows))
            flow = flows[place]
            for _ in range(4000):
                key = int(rng.integers(1 << 62))
                hops = topology.path(flow.src, flow.dst, key, "hash")
                link = next(h.link for h in hops if _is_uplink(topology, h.link))
                if target is None or link == target:
                    target = link
                    break
            flows[place] = type(flow)(flow.src, flow.dst, tuple(hops), key)
            table.replace_paths(group, flows)

    def undo() -> None:
        for group, flows in before.items():
            table.replace_paths(group, flows)

    scene.during(collide, undo)


def incast(scene: Scene) -> None:
    """Many hosts send to one NIC at once: for long, or in bursts of 1.5 s."""
    cluster, topology, rng = scene.cluster, scene.topology, scene.cluster.rng
    receiver = int(rng.choice(scene.hosts))
    rail = int(rng.integers(topology.shape.rails))
    nic = topology.nic(receiver, rail)
    senders = [h for h in range(topology.shape.hosts) if h != receiver]
    chosen = rng.permutation(senders)[: int(rng.integers(4, min(16, len(senders)) + 1))]
    routing = cluster.routing if cluster.routing != "hash" else "spray"
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

    run(cluster, [Job("incast", (), program, scene.start_s, scene.end_s)])
    truth = scene.truth("incast", ports=[nic, last_hop], nodes=[topology.node_of(nic)])
    truth.affected = {topology.port_id(topology.nic(int(h), rail)) for h in chosen}
    truth.note = "bursts of 1.5 s" if bursts else ""
    scene.judge.excused.add(last_hop)
    scene.judge.inject(truth, lambda state: bool(state.full[last_hop]))


def slow_receiver(scene: Scene) -> None:
    """A host takes the data of a NIC (or all) out of its buffer too slowly."""
    cluster, topology, rng = scene.cluster, scene.topology, scene.cluster.rng
    if cluster.world.transport.settings.transport == TCP:
        raise NotPossibleError
    host = int(rng.choice(scene.hosts))
    nics = _some_rails(scene, host)
    left = float(rng.uniform(0.15, 0.6))
    _limit_sinks(scene, nics, left)
    names = ("slow_receiver", *(("pause_storm",) if left < 0.3 else ()))
    truth = scene.truth(
        *names,
        ports=[*nics, *(int(topology.peer[n]) for n in nics)],
        nodes=[topology.node_of(nics[0])],
    )
    sinks = [topology.sink(n) for n in nics]
    scene.judge.inject(truth, lambda state: bool(state.full[sinks].any()))


def degraded_link(scene: Scene) -> None:
    """A link runs at less than its speed, or damages packets."""
    cluster, topology, rng = scene.cluster, scene.topology, scene.cluster.rng
    transport = cluster.world.transport
    link = _used_link(scene)
    both = ends(topology, link)
    slow = bool(rng.random() < 0.5)
    factor = float(rng.choice([0.5, 0.25]))
    lost = float(10 ** rng.uniform(-2.7, -1.7))

    def begin() -> None:
        if slow:
            transport.speed[both] *= factor
        else:
            transport.loss[link] = lost

    def finish() -> None:
        if slow:
            transport.speed[both] /= factor
        else:
            transport.loss[link] = 0.0

    scene.during(begin, finish)
    truth = scene.truth(
        "degraded_link",
        *(() if slow else ("error_burst",)),
        ports=both,
        nodes=[topology.node_of(p) for p in both],
    )
    truth.note = "slower" if slow else "lossy"
    # A switch port that nobody watches shows its speed on no node.
    truth.inside = topology.role[link] == UP or topology.role[both[1]] == UP
    scene.judge.excused.update(both)
    speed = topology.speed[link] * (factor if slow else 1.0)
    scene.judge.inject(truth, lambda state: slow or float(state.load[link]) > 0.02 * speed)


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


Fault = Callable[[Scene], None]

FAULTS: dict[str, Fault] = {
    "ecmp_collision": ecmp_collision,
    "incast": incast,
    "slow_receiver": slow_receiver,
    "degraded_link": degraded_link,
    "straggler": straggler,
}


def _limit_sinks(scene: Scene, nics: list[int], left: float) -> None:
    transport, topology = scene.cluster.world.transport, scene.topology
    sinks = [topology.sink(n) for n in nics]
    was = transport.host_factor[sinks].copy()

    def begin() -> None:
        transport.host_factor[sinks] = left / transport.service[sinks]

    def finish() -> None:
        transport.host_factor[sinks] = was

    scene.during(begin, finish)


def _some_rails(scene: Scene, host: int) -> list[int]:
    """One NIC of a host, or sometimes all."""
    topology, rng = scene.topology, scene.cluster.rng
    rails = topology.shape.rails
    if rng.random() < 0.3:
        return list(topology.hosts[host][:rails])
    return [topology.nic(host, int(rng.integers(rails)))]


def _used_link(scene: Scene) -> int:
    """A NIC's link or an uplink that the job's flows use."""
    topology, rng, table = scene.topology, scene.cluster.rng, scene.cluster.world.table
    links: dict[bool, set[int]] = {True: set(), False: set()}
    for group in scene.cluster.groups:
        for flow in table.flows_of(group):
            for hop in flow.hops:
                if hop.link < topology.ports:
                    is_nic = bool(topology.role[hop.link] == NIC)
                    if is_nic or topology.role[hop.link] == UP:
                        links[is_nic].add(hop.link)
    kinds = [kind for kind, found in links.items() if found]
    if not kinds:
        raise NotPossibleError
    chosen = sorted(links[kinds[int(rng.integers(len(kinds)))]])
    return int(rng.choice(chosen))


def _is_uplink(topology: Topology, link: int) -> bool:
    return link < topology.ports and bool(topology.role[link] == UP)
