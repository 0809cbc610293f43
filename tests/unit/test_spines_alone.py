"""Fabrics of which the hosts and the spines are watched, and the leaves are not."""

from __future__ import annotations

import msgspec

from tests.builders import new_pipeline
from tests.score.play import reported_by
from tests.world.flows import Flow
from tests.world.sampling import Sampler
from tests.world.topology import CLOS, HASH, Shape, Topology
from tests.world.transport import Settings, Transport
from tests.world.watched_nodes import View
from tests.world.world import Part, Program, Transfer, World, path_flow


def through(topology: Topology, src: int, dst: int, spine: str) -> Flow:
    """A flow of the first rail whose hash leads over a spine."""
    for key in range(10_000):
        flow = path_flow(topology, topology.nic(src, 0), topology.nic(dst, 0), key, HASH)
        if topology.node_of(flow.hops[3].link) == spine:
            return flow
    raise AssertionError(spine)


def opened(*flows: tuple[int, int, str]) -> list[str]:
    """What opens in 40 s in which a host sends to another one over a spine, 8 hosts to a leaf."""
    topology = Topology(Shape(CLOS, 24, 2, 400.0, 400.0, 1.0, 8), seed=1)
    world = World(topology, Transport(topology, Settings(saturation=0.98), 1), lambda *_: None, 1)
    for src, dst, spine in flows:
        group = world.add_group([through(topology, src, dst, spine)])

        def program(group: int = group) -> Program:
            yield Transfer([Part(group, 1e15)])

        world.start(program(), 0.0)
    sampler = Sampler(world, View(), 1)
    hosts = [each for each in sampler.hosts() if not each.name.startswith("leaf")]
    watched = {each.name for each in hosts}
    ticks = []
    for _ in range(40):
        made = sampler.tick()
        ticks.append(
            msgspec.structs.replace(
                made,
                hellos=tuple(each for each in made.hellos if each[0] in watched),
                frames=tuple(each for each in made.frames if each[0] in watched),
                statuses=tuple(each for each in made.statuses if each.node in watched),
            )
        )
    return [f"{each.cause} {each.subject}" for each in reported_by(new_pipeline(hosts), ticks)]


def test_a_full_link_into_a_leaf_that_is_not_watched_is_found() -> None:
    assert opened((0, 16, "spine1"), (8, 17, "spine1")) == ["ecmp_collision spine1/swp3"]


def test_links_into_it_of_one_flow_each_are_none() -> None:
    assert opened((0, 16, "spine1"), (8, 17, "spine2")) == []


def test_a_full_uplink_of_it_is_a_queue_that_its_hosts_show() -> None:
    """The port that sends into it is not watched."""
    assert opened((0, 8, "spine1"), (1, 16, "spine1")) == ["congested_path paths out of leaf1"]
