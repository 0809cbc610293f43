"""Faults of the choice of paths: too many flows on one link, or on all."""

from __future__ import annotations

from tests.world.faults.scene import NotPossibleError, Scene, ends_of, is_uplink
from tests.world.flows import Flow
from tests.world.topology import HASH, SPRAY, STATIC
from tests.world.transport import INFINIBAND
from tests.world.workloads import Job, interleaved, start_jobs
from tests.world.world import Part, Program, Sleep, Transfer, path_flow


def ecmp_collision(scene: Scene) -> None:
    """Two or more flows from below one leaf are sent over one uplink: by their hashes, or by a
    static table (InfiniBand). The truth about it is the model's: Judge observes the overload."""
    if scene.cluster.world.transport.settings.transport == INFINIBAND:
        _destinations_on_one_link(scene)
    else:
        _hashes_on_one_link(scene)


def _hashes_on_one_link(scene: Scene) -> None:
    cluster, rng = scene.cluster, scene.cluster.rng
    table = cluster.world.table
    rich = [flows for flows in _flows_by_leaf(scene).values() if len(flows) > 1]
    if not rich:
        raise NotPossibleError
    chosen = rich[int(rng.integers(len(rich)))]
    wide = _nics_per_uplink(scene) * cluster.qps
    picks = rng.permutation(len(chosen))[: int(rng.integers(2, 4)) * wide]
    before: dict[int, list[Flow]] = {}

    def collide() -> None:
        target: int | None = None
        for pick in picks:
            group, place = chosen[pick]
            flows = table.flows_of(group)
            before.setdefault(group, list(flows))
            flows[place] = _through(scene, flows[place], target)
            target = flows[place].hops[2].link
            table.replace_paths(group, flows)

    def undo() -> None:
        for group, flows in before.items():
            table.replace_paths(group, flows)

    scene.during(collide, undo)


def _destinations_on_one_link(scene: Scene) -> None:
    """A leaf's static table sends several destinations over one of its uplinks."""
    cluster, topology, rng = scene.cluster, scene.topology, scene.cluster.rng
    if cluster.routing != STATIC:
        # Adaptive routing leaves a full link.
        raise NotPossibleError
    table = cluster.world.table
    receivers: dict[int, dict[int, int]] = {}
    for leaf, flows in _flows_by_leaf(scene).items():
        for group, place in flows:
            flow = table.flows_of(group)[place]
            if flow.src not in receivers.setdefault(leaf, {}).values():
                receivers[leaf].setdefault(flow.dst, flow.src)
    least = 2 * _nics_per_uplink(scene)
    rich = [leaf for leaf, found in receivers.items() if len(found) >= least]
    if not rich:
        raise NotPossibleError
    leaf = rich[int(rng.integers(len(rich)))]
    switch, known = topology.switches[leaf], sorted(receivers[leaf])
    if len(switch.ups) < 2:
        raise NotPossibleError
    count = int(rng.integers(2, 4)) * _nics_per_uplink(scene)
    chosen = [known[n] for n in rng.permutation(len(known))[:count]]
    uplink = int(rng.choice(switch.ups))

    def use(tables: dict[int, int]) -> None:
        switch.tables = tables
        for group in cluster.groups:
            flows = table.flows_of(group)
            hit = [n for n, f in enumerate(flows) if f.dst in chosen and _leaves(scene, f, leaf)]
            for n in hit:
                flow = flows[n]
                flows[n] = path_flow(topology, flow.src, flow.dst, flow.key, STATIC)
            if hit:
                table.replace_paths(group, flows)

    scene.during(lambda: use(dict.fromkeys(chosen, uplink)), lambda: use({}))


def _leaves(scene: Scene, flow: Flow, leaf: int) -> bool:
    """Whether a flow leaves a leaf upwards."""
    node = scene.topology.node
    return any(is_uplink(scene.topology, hop.link) and node[hop.link] == leaf for hop in flow.hops)


def _nics_per_uplink(scene: Scene) -> int:
    """How many NICs fill an uplink."""
    shape = scene.topology.shape
    return max(1, round(shape.uplink_gbps / shape.nic_gbps))


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
        "polarization", "ecmp_collision", ports=ends_of(topology, switch.ups), nodes=[switch.name]
    )
    truth.inside = True
    truth.affected = {
        topology.port_id(p) for g, n in moved for p in _ports_of(table.flows_of(g)[n])
    }
    scene.judge.excused.update(switch.ups)
    scene.judge.inject(truth, lambda state: bool(state.full[switch.ups].any()))


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

    start_jobs(cluster, [Job("more", (), program, scene.start_s, scene.end_s)])


def _flows_by_leaf(scene: Scene) -> dict[int, list[tuple[int, int]]]:
    """The flows (group, place in it) that leave each leaf upwards, by the leaf's node."""
    topology, table = scene.topology, scene.cluster.world.table
    found: dict[int, list[tuple[int, int]]] = {}
    for group in scene.cluster.groups:
        for place, flow in enumerate(table.flows_of(group)):
            first = next((h.link for h in flow.hops if is_uplink(topology, h.link)), -1)
            if first >= 0:
                found.setdefault(int(topology.node[first]), []).append((group, place))
    return found


def _busiest_leaf(scene: Scene, least: int) -> tuple[int, list[tuple[int, int]]]:
    """The leaf that most flows leave upwards, its node and those flows (group, place)."""
    leaving = _flows_by_leaf(scene)
    if not leaving:
        raise NotPossibleError
    leaf, flows = max(leaving.items(), key=lambda item: len(item[1]))
    if len(flows) < least:
        raise NotPossibleError
    return leaf, flows


def _through(scene: Scene, flow: Flow, uplink: int | None) -> Flow:
    """The same flow over that uplink of its leaf (None: any), hashed at the switches after it."""
    topology, rng = scene.topology, scene.cluster.rng
    for _ in range(4000):
        key = int(rng.integers(1 << 62))
        hops = topology.path(flow.src, flow.dst, key, HASH)
        if uplink is None or hops[2].link == uplink:
            return Flow(flow.src, flow.dst, tuple(hops), key)
    raise AssertionError("no key leads there")


def _by_group(flows: list[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for group, place in flows:
        found.setdefault(group, []).append(place)
    return found


def _ports_of(flow: Flow) -> tuple[int, ...]:
    return tuple(p for p in (flow.src, flow.dst) if p >= 0)
