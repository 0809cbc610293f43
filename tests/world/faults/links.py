"""Faults of links: down, flapping, slower, or with damaged packets."""

from __future__ import annotations

from tests.world.faults.scene import NotPossibleError, Scene, used_link
from tests.world.topology import DOWN, NIC, UP, ends
from tests.world.world import CARRIER, LINK_DOWN, path_flow


def link_down(scene: Scene) -> None:
    """A link goes down; switches route around it within a fraction of a second."""
    link = used_link(scene)
    take_down(scene, link, [(scene.start_s, scene.end_s)])
    _is_down(scene, link, "link_down")


def flapping_link(scene: Scene) -> None:
    """A link goes down and up every few seconds."""
    link = used_link(scene)
    rng = scene.cluster.rng
    times, now = [], scene.start_s
    down_s, up_s = float(rng.uniform(0.8, 3.0)), float(rng.uniform(2.5, 8.0))
    while now < scene.end_s - 4:
        times.append((now, now + down_s))
        now += down_s + float(rng.uniform(0.7, 1.3)) * up_s
    take_down(scene, link, times)
    _is_down(scene, link, "flapping_link", "link_down")


def degraded_link(scene: Scene) -> None:
    """A link runs at less than its speed, or damages packets."""
    cluster, topology, rng = scene.cluster, scene.topology, scene.cluster.rng
    transport = cluster.world.transport
    link = used_link(scene)
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
    # Where a port that counts the damage is watched, losses by themselves are not the answer; where
    # none is, they are all that shows.
    names = ["degraded_link", *(() if slow else ("error_burst",))]
    if not slow and not scene.sampler.view.visible:
        unseen = topology.role[topology.peer[link]] in (DOWN, UP)
        names.insert(0 if unseen else len(names), "packet_loss")
    truth = scene.of_link(link, *names)
    truth.note = "slower" if slow else "lossy"
    scene.judge.excused.update(both)
    speed = topology.speed[link] * (factor if slow else 1.0)
    scene.judge.inject(truth, lambda state: slow or float(state.load[link]) > 0.02 * speed)


def error_burst(scene: Scene) -> None:
    """A port receives damaged packets, too few to slow anything."""
    topology, world, rng = scene.topology, scene.cluster.world, scene.cluster.rng
    link = used_link(scene)
    receiver = int(topology.peer[link])
    if topology.role[receiver] != NIC and not scene.sampler.view.visible:
        raise NotPossibleError
    rate = float(10 ** rng.uniform(1.3, 3.3))

    def begin() -> None:
        world.error_rate[receiver] = rate

    def finish() -> None:
        world.error_rate[receiver] = 0.0

    scene.during(begin, finish)
    both = ends(topology, link)
    truth = scene.truth("error_burst", ports=both, nodes=[topology.node_of(p) for p in both])
    scene.judge.inject(truth, lambda _: True)


def take_down(scene: Scene, link: int, times: list[tuple[float, float]]) -> None:
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

    for begin, finish in times:
        scene.at(begin, down)
        scene.at(finish, up)


def _is_down(scene: Scene, link: int, cause: str, *more: str) -> None:
    truth = scene.of_link(link, cause, *more)
    if truth.inside and not scene.sampler.view.visible:
        truth.required = False
    scene.judge.inject(truth, lambda _: True)


def _count_change(scene: Scene, ports: list[int], fell: bool) -> None:
    counters = scene.cluster.world.counters
    counters[CARRIER, ports] += 1
    if fell:
        counters[LINK_DOWN, ports] += 1
