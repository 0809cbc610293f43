"""Faults: each changes one thing in the model for some time, and says what is then true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.world.flows import Flow
from tests.world.sampling import Sampler
from tests.world.topology import DOWN, HASH, NIC, SPRAY, STATIC, UP, Topology, ends
from tests.world.transport import INFINIBAND, ROCE, TCP, State
from tests.world.truth import Judge, Truth
from tests.world.workloads import Cluster, Job, interleaved, run
from tests.world.world import CARRIER, LINK_DOWN, Part, Program, Sleep, Transfer, path_flow


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

    def crossing(self, link: int) -> set[str]:
        """Ids of the NICs whose flows take a link."""
        table, found = self.cluster.world.table, set()
        for flow in table.flows:
            if any(hop.link == link for hop in flow.hops):
                found |= {self.topology.port_id(p) for p in (flow.src, flow.dst) if p >= 0}
        return found

    def only_seen_from_afar(self, truth: Truth, nics: list[int]) -> None:
        """On InfiniBand only the switch's port counts that a receiver is slow: where no switch is
        watched, all that shows is that its senders wait."""
        transport = self.cluster.world.transport.settings.transport
        if transport == INFINIBAND and not self.sampler.view.visible:
            truth.inside = True
            for nic in nics:
                truth.affected |= self.crossing(int(self.topology.peer[nic]))

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
    shape = topology.shape
    wide = max(1, round(shape.uplink_gbps / shape.nic_gbps)) * cluster.qps
    picks = rng.permutation(len(chosen))[: int(rng.integers(2, 4)) * wide]
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
    scene.only_seen_from_afar(truth, nics)
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
    truth.inside = bool(topology.role[link] == UP or topology.role[both[1]] == UP)
    truth.affected = scene.crossing(link)
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


def polarization(scene: Scene) -> None:
    """The hash of a leaf's switch has two values only: all its flows use two of its uplinks."""
    topology, table = scene.topology, scene.cluster.world.table
    leaf, moved = _busiest_leaf(scene, least=4)
    switch = topology.switches[leaf]
    if len(switch.ups) < 4:
        raise NotPossibleError
    before = {group: table.flows_of(group) for group in {g for g, _ in moved}}

    def begin() -> None:
        switch.hash_values = 2
        for group, places in _by_group(moved).items():
            flows = table.flows_of(group)
            for place in places:
                flow = flows[place]
                key = int(scene.cluster.rng.integers(1 << 62))
                first = next(iter(topology.path(flow.src, flow.dst, key, HASH)[2:]))
                assert topology.node[first.link] == leaf
                flows[place] = _through(scene, flow, first.link)
            table.replace_paths(group, flows)

    def finish() -> None:
        switch.hash_values = 0
        for group, flows in before.items():
            table.replace_paths(group, flows)

    scene.during(begin, finish)
    truth = scene.truth(
        "polarization", "ecmp_collision", ports=_ends(topology, switch.ups), nodes=[switch.name]
    )
    truth.inside = True
    truth.affected = {
        topology.port_id(p) for g, n in moved for p in _ports_of(table.flows_of(g)[n])
    }
    scene.judge.excused.update(switch.ups)
    ups = np.array(switch.ups)
    scene.judge.inject(truth, lambda state: bool(state.full[ups].any()))


def oversubscription(scene: Scene) -> None:
    """Hosts below the leaves send more than their uplinks carry; the judge sees it."""
    cluster, topology = scene.cluster, scene.topology
    if topology.shape.ratio > 0.75:
        raise NotPossibleError
    order = interleaved(cluster, list(range(topology.shape.hosts)))
    pairs = [
        (topology.nic(a, rail), topology.nic(b, rail))
        for a, b in zip(order, order[1:] + order[:1], strict=True)
        for rail in range(topology.shape.rails)
    ]
    was = cluster.routing

    def program() -> Program:
        cluster.routing, cluster.qps = (was if was == STATIC else SPRAY), 1
        groups = [cluster.group([pair]) for pair in pairs]
        cluster.routing = was
        while True:
            yield Transfer([Part(g, cluster.nic_rate * 3) for g in groups])
            yield Sleep(cluster.around(0.3, 0.3))

    run(cluster, [Job("more", (), program, scene.start_s, scene.end_s)])


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
        ports=_ends(topology, cycle),
        nodes=[topology.node_of(p) for p in cycle],
    )
    truth.inside = True
    scene.judge.excused.update(cycle)
    scene.judge.inject(truth, lambda state: bool(state.paused[cycle].min() > 0.9))


def host_pcie_limit(scene: Scene) -> None:
    """The PCIe link of a NIC retrains at a quarter to a half of what the NIC needs."""
    cluster, topology, world = scene.cluster, scene.topology, scene.cluster.world
    transport = world.transport
    if transport.settings.transport == TCP:
        raise NotPossibleError
    host = int(cluster.rng.choice(scene.hosts))
    nics = _some_rails(scene, host)
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
    truth = scene.truth(*names, ports=_ends(topology, nics), nodes=[node.name])
    truth.note = "narrower" if narrow else ""
    if not narrow:
        scene.only_seen_from_afar(truth, nics)
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


def link_down(scene: Scene) -> None:
    """A link goes down; switches route around it within a fraction of a second."""
    link = _used_link(scene)
    _take_down(scene, link, [(scene.start_s, scene.end_s)])
    topology = scene.topology
    both = ends(topology, link)
    truth = scene.truth("link_down", ports=both, nodes=[topology.node_of(p) for p in both])
    truth.inside = bool(topology.role[both[0]] == UP or topology.role[both[1]] == UP)
    truth.affected = scene.crossing(link)
    if truth.inside and not scene.sampler.view.visible:
        truth.required = False
    scene.judge.inject(truth, lambda _: True)


def flapping_link(scene: Scene) -> None:
    """A link goes down and up every few seconds."""
    link = _used_link(scene)
    topology, rng = scene.topology, scene.cluster.rng
    times, now = [], scene.start_s
    down_s, up_s = float(rng.uniform(0.8, 3.0)), float(rng.uniform(2.5, 8.0))
    while now < scene.end_s - 4:
        times.append((now, now + down_s))
        now += down_s + float(rng.uniform(0.7, 1.3)) * up_s
    _take_down(scene, link, times)
    both = ends(topology, link)
    truth = scene.truth(
        "flapping_link", "link_down", ports=both, nodes=[topology.node_of(p) for p in both]
    )
    truth.inside = bool(topology.role[both[0]] == UP or topology.role[both[1]] == UP)
    truth.affected = scene.crossing(link)
    if truth.inside and not scene.sampler.view.visible:
        truth.required = False
    scene.judge.inject(truth, lambda _: True)


def error_burst(scene: Scene) -> None:
    """A port receives damaged packets, too few to slow anything."""
    topology, world, rng = scene.topology, scene.cluster.world, scene.cluster.rng
    link = _used_link(scene)
    receiver = int(topology.peer[link])
    rate = float(10 ** rng.uniform(1.3, 3.3))

    def begin() -> None:
        world.error_rate[receiver] = rate

    def finish() -> None:
        world.error_rate[receiver] = 0.0

    scene.during(begin, finish)
    both = ends(topology, link)
    truth = scene.truth("error_burst", ports=both, nodes=[topology.node_of(p) for p in both])
    truth.inside = topology.role[receiver] != NIC
    if truth.inside and not scene.sampler.view.visible:
        raise NotPossibleError
    truth.inside = False
    scene.judge.inject(truth, lambda _: True)


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
            _take_down(scene, port, [(scene.start_s, scene.end_s + 600)])
    world.at(scene.start_s + float(rng.uniform(1, 4)), lambda: scene.sampler.lose(name))
    truth = scene.truth("node_lost", "link_down", ports=_ends(topology, ports), nodes=[name])
    truth.note = "crashed" if crashed else "does not answer"
    truth.end_s += 600
    scene.judge.inject(truth, lambda _: True)


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
    if all_hosts and not scene.sampler.view.visible:
        # NICs that nobody uses may as well be for something else.
        truth.required = False
    array = np.array(busy)
    scene.judge.inject(
        truth, lambda state: bool((state.load[array] > 0.4 * topology.speed[array]).any())
    )


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


Fault = Callable[[Scene], None]

FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        ecmp_collision,
        polarization,
        oversubscription,
        incast,
        slow_receiver,
        pause_storm,
        pause_deadlock,
        host_pcie_limit,
        straggler,
        uneven_rails,
        link_down,
        flapping_link,
        degraded_link,
        error_burst,
        node_lost,
        saturated_counter,
    )
}


def _take_down(scene: Scene, link: int, times: list[tuple[float, float]]) -> None:
    """Both directions of a link are down from each time to the next; paths avoid a switch's."""
    world, topology = scene.cluster.world, scene.topology
    transport, table = world.transport, world.table
    both = ends(topology, link)
    between = all(topology.role[p] in (DOWN, UP) for p in both)

    def down() -> None:
        transport.host_factor[both] = 1e-6
        transport.is_down[both] = True
        world.up[both] = False
        _count_change(scene, both, fell=True)
        if between:
            topology.down.update(both)
            world.at(world.now + 0.2, reroute)

    def up() -> None:
        transport.host_factor[both] = 1.0
        transport.is_down[both] = False
        world.up[both] = True
        _count_change(scene, both, fell=False)
        topology.down.difference_update(both)

    def reroute() -> None:
        for group in range(len(table.active)):
            flows = table.flows_of(group)
            hit = [n for n, f in enumerate(flows) if any(h.link in both for h in f.hops)]
            for n in hit:
                flow = flows[n]
                routing = scene.cluster.routing
                flows[n] = path_flow(topology, flow.src, flow.dst, flow.key, routing)
            if hit:
                table.replace_paths(group, flows)
        world.dirty = True

    def changing(do: Callable[[], None]) -> Callable[[], None]:
        def changed() -> None:
            do()
            world.dirty = True

        return changed

    for begin, finish in times:
        world.at(begin, changing(down))
        world.at(finish, changing(up))


def _count_change(scene: Scene, ports: list[int], fell: bool) -> None:
    counters = scene.cluster.world.counters
    counters[CARRIER, ports] += 1
    if fell:
        counters[LINK_DOWN, ports] += 1


def _busiest_leaf(scene: Scene, least: int) -> tuple[int, list[tuple[int, int]]]:
    """A leaf's node and the flows (group, place) that leave it upwards: the leaf with the most."""
    topology, table = scene.topology, scene.cluster.world.table
    leaving: dict[int, list[tuple[int, int]]] = {}
    for group in scene.cluster.groups:
        for place, flow in enumerate(table.flows_of(group)):
            first = next((h.link for h in flow.hops if _is_uplink(topology, h.link)), -1)
            if first >= 0:
                leaving.setdefault(int(topology.node[first]), []).append((group, place))
    if not leaving:
        raise NotPossibleError
    leaf, flows = max(leaving.items(), key=lambda item: len(item[1]))
    if len(flows) < least:
        raise NotPossibleError
    return leaf, flows


def _through(scene: Scene, flow: Flow, uplink: int) -> Flow:
    """The same flow over that uplink of its leaf; spread further on."""
    topology, rng = scene.topology, scene.cluster.rng
    for _ in range(4000):
        key = int(rng.integers(1 << 62))
        hops = topology.path(flow.src, flow.dst, key, HASH)
        if hops[2].link == uplink:
            return Flow(flow.src, flow.dst, tuple(hops), key)
    raise AssertionError("no key leads there")


def _by_group(flows: list[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for group, place in flows:
        found.setdefault(group, []).append(place)
    return found


def _ports_of(flow: Flow) -> tuple[int, ...]:
    return tuple(p for p in (flow.src, flow.dst) if p >= 0)


def _ends(topology: Topology, links: list[int]) -> list[int]:
    return [port for link in links for port in ends(topology, link)]


BEFORE_JOBS = frozenset({"uneven_rails"})
"""Faults of the jobs themselves: there before these start."""


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
