"""The simulator itself: bytes are conserved, shares are fair, PFC loses nothing, hashes collide as
often as chance has it, and what it calls true is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.world import world
from tests.world.flows import Flow
from tests.world.plans import draw_plan
from tests.world.runs import build
from tests.world.sampling import Sampler
from tests.world.topology import CLOS, DOWN, FAT_TREE, HASH, NIC, RAIL_KIND, SPRAY, Shape, Topology
from tests.world.transport import INFINIBAND, ROCE, TCP, Settings, State, Transport
from tests.world.truth import Judge, _chance_of_few
from tests.world.watched_nodes import View
from tests.world.world import Part, Program, Transfer, World, path_flow

GBIT = 1e9 / 8


def shape(kind: str = CLOS, hosts: int = 16, rails: int = 2, ratio: float = 1.0) -> Shape:
    return Shape(kind, hosts, rails, 400.0, 400.0, ratio, hosts_per_leaf=hosts // 2)


THREE_LEAVES = Shape(CLOS, 24, 2, 400.0, 400.0, 1.0, 8)


class Bench:
    """A fabric with flows that run for ever."""

    def __init__(self, of: Shape | None = None, settings: Settings | None = None) -> None:
        self.topology = Topology(of or shape(), seed=1)
        self.transport = Transport(self.topology, settings or Settings(saturation=0.98), 1)
        self.judge = Judge(self.topology, self.transport)
        self.world = World(self.topology, self.transport, self.judge.observe, 1)

    def flow(self, src: int, dst: int, key: int = 0, routing: str = HASH) -> Flow:
        topology = self.topology
        return path_flow(topology, topology.nic(src, 0), topology.nic(dst, 0), key, routing)

    def through(self, src: int, dst: int, uplink: int) -> Flow:
        """A flow over the n-th uplink of its leaf."""
        for key in range(10_000):
            flow = self.flow(src, dst, key)
            switch = self.topology.switches[int(self.topology.node[flow.hops[2].link])]
            if flow.hops[2].link == switch.ups[uplink]:
                return flow
        raise AssertionError

    def state(self) -> State:
        """The equilibrium at the end."""
        state = self.world.state
        assert state is not None
        return state

    def run(self, flows: list[Flow], seconds: float, size: float = 1e15) -> list[float]:
        """The bytes/s of each flow at the end."""
        groups = [self.world.add_group([flow]) for flow in flows]

        def program() -> Program:
            yield Transfer([Part(group, size) for group in groups])

        self.world.start(program(), 0.0)
        self.world.advance(seconds, np.full(self.topology.ports, 1e9), lambda *_: None)
        rates: list[float] = self.state().flow_rate[: len(flows)].tolist()
        return rates


@pytest.mark.parametrize("workload", ["ring", "moe", "several jobs"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_bytes_are_conserved(workload: str, seed: int) -> None:
    run = build(draw_plan(seed, "healthy", workload))
    for _ in range(25):
        run.sampler.tick()
    topology, counters = run.world.topology, run.world.counters
    rdma = counters[world.TX_RDMA] if run.plan.transport != TCP else counters[world.TX]
    sent = rdma[topology.role == NIC].sum()
    last_hops = topology.peer[np.flatnonzero(topology.role == NIC)]
    assert sent > 1e9
    assert rdma[last_hops].sum() == pytest.approx(sent, rel=1e-6)
    for switch in topology.switches.values():
        ports = np.array(switch.ports)
        assert rdma[ports].sum() == pytest.approx(rdma[topology.peer[ports]].sum(), rel=1e-6)


def test_a_transfer_moves_exactly_its_bytes() -> None:
    bench = Bench()
    bench.run([bench.flow(0, 1)], seconds=2.0, size=7.3e9)
    assert bench.world.counters[world.TX, bench.topology.nic(0, 0)] == pytest.approx(7.3e9)


@pytest.mark.parametrize("senders", [2, 4, 8])
def test_dcqcn_converges_to_the_fair_share(senders: int) -> None:
    bench = Bench()
    rates = bench.run([bench.flow(n + 1, 0) for n in range(senders)], seconds=1.0)
    assert sum(rates) == pytest.approx(400 * GBIT, rel=0.03)
    assert rates == pytest.approx([400 * GBIT / senders] * senders, rel=0.2)


def test_more_flows_at_a_queue_are_marked_more() -> None:
    marks = []
    for senders in (2, 6):
        bench = Bench()
        bench.run([bench.flow(n + 1, 0) for n in range(senders)], seconds=1.0)
        state = bench.state()
        marks.append(float(state.flow_marked[0]))
    assert 0.05 < marks[0] < marks[1]


def test_pfc_loses_nothing_and_pauses_for_what_does_not_fit() -> None:
    bench = Bench()
    nic = bench.topology.nic(0, 0)
    bench.transport.host_factor[bench.topology.sink(nic)] = (
        0.25 / bench.transport.service[bench.topology.sink(nic)]
    )
    bench.run([bench.flow(1, 0)], seconds=4.0)
    counters, last_hop = bench.world.counters, int(bench.topology.peer[nic])
    assert counters[world.DROPPED].sum() == 0
    assert counters[world.TX, last_hop] == pytest.approx(
        counters[world.TX, bench.topology.nic(1, 0)]
    )
    assert counters[world.TX, last_hop] == pytest.approx(4 * 100 * GBIT, rel=0.02)
    assert counters[world.PAUSED_US, last_hop] == pytest.approx(4e6 * 0.75, rel=0.03)


def test_without_credits_the_senders_of_an_infiniband_incast_wait() -> None:
    bench = Bench(settings=Settings(transport=INFINIBAND, dcqcn=False))
    bench.run([bench.flow(n + 1, 0) for n in range(4)], seconds=2.0)
    waits = bench.world.counters[world.PAUSED_US, [bench.topology.nic(n + 1, 0) for n in range(4)]]
    assert waits == pytest.approx([2e6 * 0.75] * 4, rel=0.15)


def test_a_hung_receiver_stops_what_shares_its_path() -> None:
    bench = Bench(settings=Settings(dcqcn=False))
    nic = bench.topology.nic(8, 0)
    bench.transport.host_factor[bench.topology.sink(nic)] = 0.0005
    rates = bench.run(
        [bench.through(0, 8, 0), bench.through(1, 9, 0), bench.through(2, 10, 1)], seconds=1.0
    )
    assert rates[1] < 0.01 * rates[2]


def test_tcp_drops_and_pauses_nobody() -> None:
    bench = Bench(settings=Settings(transport=TCP, dcqcn=False))
    bench.run([bench.flow(1, 0), bench.flow(2, 0)], seconds=1.0)
    counters = bench.world.counters
    assert counters[world.DROPPED, bench.topology.peer[bench.topology.nic(0, 0)]] > 1000
    assert counters[world.PAUSED_US].sum() == 0


def test_a_tcp_path_that_is_dead_holds_up_no_others() -> None:
    bench = Bench(settings=Settings(transport=TCP, dcqcn=False))
    bench.transport.host_factor[_up(bench, 0)] = 1e-6
    flows = [bench.through(0, 8, 0), bench.through(1, 9, 1), bench.through(2, 10, 1)]
    rates = bench.run(flows, seconds=5.0)
    assert rates[0] < 0.01 * rates[1]
    assert rates[1] + rates[2] == pytest.approx(400 * GBIT, rel=0.03)


def test_a_full_link_on_which_nothing_moves_is_no_collision() -> None:
    # What waits for a queue elsewhere is offered to all links of its path.
    bench = Bench()
    bench.run([bench.through(0, 8, 2), bench.through(1, 9, 2)], seconds=1.0)
    state = bench.state()
    for load, causes in ((state.load, {"ecmp_collision"}), (0.0 * state.load, set())):
        judge = Judge(bench.topology, bench.transport)
        judge.observe(0.0, 10.0, replace(state, load=load))
        assert {truth.cause for truth in judge.finish()} == causes


@pytest.mark.parametrize(
    ("flows", "links", "peak", "p95", "idle"),
    [(8, 8, 2.6, 4.0, 0.34), (16, 8, 2.1, 3.0, 0.12), (64, 16, 2.0, 2.5, 0.02)],
)
def test_ecmp_collides_as_often_as_chance(
    flows: int, links: int, peak: float, p95: float, idle: float
) -> None:
    # Peak-to-average of equal flows hashed at random; expected values from 6,000 trials.
    topology = Topology(shape(hosts=links, rails=2, ratio=1.0), seed=5)
    leaf = topology.switches[topology.leaves[0]]
    assert len(leaf.ups) == links
    rng = np.random.default_rng(1)
    peaks, idles = [], []
    for _ in range(800):
        used = []
        for _ in range(flows):
            key = int(rng.integers(1 << 62))
            hops = topology.path(topology.nic(0, 0), topology.nic(links - 1, 0), key, HASH)
            used.append(leaf.ups.index(hops[2].link))
        counts = np.bincount(used, minlength=links)
        peaks.append(counts.max() / counts.mean())
        idles.append((counts == 0).mean())
    assert np.mean(peaks) == pytest.approx(peak, abs=0.1)
    assert np.percentile(peaks, 95) == pytest.approx(p95, abs=0.5)
    assert np.mean(idles) == pytest.approx(idle, abs=0.02)


@pytest.mark.parametrize("kind", [RAIL_KIND, CLOS, FAT_TREE])
def test_paths_lead_to_their_receiver(kind: str) -> None:
    topology = Topology(Shape(kind, 16, 2, 400.0, 400.0, 1.0, 4), seed=2)
    for routing in (HASH, SPRAY):
        for src, dst in ((0, 1), (0, 15), (7, 8)):
            hops = topology.path(topology.nic(src, 1), topology.nic(dst, 1), 9, routing)
            assert hops[-1].link == topology.sink(topology.nic(dst, 1))
            known = {-1} | {hop.link for hop in hops}
            assert all(hop.before in known for hop in hops)
            last = int(topology.peer[topology.nic(dst, 1)])
            assert sum(h.share for h in hops if h.link == last) == pytest.approx(1.0)


def test_two_flows_on_one_uplink_are_a_collision_and_lose_half() -> None:
    bench = Bench()
    bench.run([bench.through(0, 8, 2), bench.through(1, 9, 2)], seconds=10.0)
    [truth] = [t for t in bench.judge.finish() if t.ports & {bench.topology.port_id(_up(bench, 2))}]
    assert truth.cause == "ecmp_collision"
    assert truth.required
    assert truth.lost == pytest.approx(0.5, abs=0.03)


def test_while_its_whole_group_is_full_a_link_loses_nothing() -> None:
    # Two flows on each of four uplinks; those on one have twice as much to move. Half of that time
    # all links are full, then an even use would be twice as fast.
    bench = Bench(shape(ratio=0.25))
    flows = [bench.through(host, 8 + host, host // 2) for host in range(8)]
    groups = [bench.world.add_group([flow]) for flow in flows]
    sizes = [100 * GBIT * (1 + (host // 2 == 2)) for host in range(8)]

    def program() -> Program:
        while True:
            yield Transfer([Part(group, size) for group, size in zip(groups, sizes, strict=True)])

    bench.world.start(program(), 0.0)
    bench.world.advance(20.0, np.full(bench.topology.ports, 1e9), lambda *_: None)
    port = bench.topology.port_id(_up(bench, 2))
    [truth] = [
        each
        for each in bench.judge.finish()
        if each.cause == "ecmp_collision" and port in each.ports
    ]
    assert truth.lost == pytest.approx(0.5, abs=0.05)
    assert truth.lost_while_full == pytest.approx(1 / 3, abs=0.05)


def test_a_flow_that_two_links_hold_to_the_same_rate_collides_at_both() -> None:
    # A ring with a flow on each of two uplinks, and another job's flow beside each.
    bench = Bench()
    first, second = bench.through(0, 8, 2), bench.through(1, 9, 2)
    third, fourth = bench.through(2, 10, 3), bench.through(3, 11, 3)
    rates = _in_step(bench, [[first, third], [second], [fourth]])
    assert rates == pytest.approx([200 * GBIT] * 3, rel=0.1)
    ports = {bench.topology.port_id(_up(bench, n)) for n in (2, 3)}
    found = [t for t in bench.judge.finish() if t.ports & ports]
    assert {min(t.ports & ports) for t in found if t.required} == ports


def test_a_link_that_is_nearly_as_full_as_what_holds_its_flows_is_right_but_has_no_queue() -> None:
    """A ring whose third flow is held on another uplink, to slightly less than half of a link."""
    bench = Bench()
    first, second, third = (bench.through(n, 8 + n, up) for n, up in ((0, 2), (1, 2), (2, 3)))
    bench.world.transport.service[_up(bench, 3)] = 0.98
    rates = _in_step(bench, [[first, second, third, bench.through(3, 11, 3)]])
    assert rates == pytest.approx([196 * GBIT], rel=0.01)
    places = {bench.topology.port_id(_up(bench, n)): n for n in (2, 3)}
    found = {
        place: truth.required
        for truth in bench.judge.finish()
        for port, place in places.items()
        if truth.cause == "ecmp_collision" and port in truth.ports
    }
    assert found == {2: False, 3: True}


def test_the_first_of_two_full_links_with_the_same_flows_has_the_queue() -> None:
    bench = Bench()
    flows = [bench.through(0, 8, 2), bench.through(1, 9, 2)]
    [behind] = {flow.hops[3].link for flow in flows}
    bench.run(flows, seconds=10.0)
    state, up = bench.state(), _up(bench, 2)
    assert state.full[[up, behind]].all()
    assert state.queued[[up, behind]].tolist() == [True, False]
    assert state.marking[up] > 0.05
    assert state.marking[behind] == 0.0
    assert _required(bench, up, behind) == [True, False]


@pytest.mark.parametrize("transport", [ROCE, INFINIBAND, TCP])
def test_what_two_full_links_let_through_finds_no_queue_at_a_third(transport: str) -> None:
    # Two leaves have a full uplink each; a flow of each takes the same link down to a third leaf.
    bench = Bench(THREE_LEAVES, Settings(transport=transport, dcqcn=transport == ROCE))
    pairs = [(0, 16), (1, 8), (9, 17), (10, 0)]
    flows = [bench.through(a, b, 2) for a, b in pairs]
    one, behind = flows[0].hops[2].link, flows[0].hops[3].link
    other = flows[2].hops[2].link
    assert flows[2].hops[3].link == behind
    rates = bench.run(flows, seconds=10.0)
    assert [sum(rates[:2]), sum(rates[2:])] == pytest.approx([400 * GBIT] * 2, rel=0.01)
    state = bench.state()
    assert state.queued[[one, other, behind]].tolist() == [True, True, False]
    assert state.marking[behind] == state.dropping[behind] == 0.0
    assert _required(bench, one, other, behind) == [True, True, False]


@pytest.mark.parametrize("own", [1, 2])
def test_a_link_behind_a_full_one_must_be_found_when_it_slows_two_senders_first(own: int) -> None:
    bench = Bench(THREE_LEAVES)
    flows = [bench.through(0, 16, 2), bench.through(1, 17, 2)]
    flows += [bench.through(8 + n, 18 + n, 2) for n in range(own)]
    [behind] = {flow.hops[3].link for flow in flows}
    up = flows[0].hops[2].link
    # Half as fast: its two flows get as much as the link behind it gives to each of four.
    bench.world.transport.service[up] = 0.5
    bench.run(flows, seconds=10.0)
    assert bench.state().full[[up, behind]].all()
    assert _required(bench, up, behind) == [True, own == 2]


def test_an_uplink_that_carries_what_its_only_receiver_can_get_is_no_collision() -> None:
    bench = Bench()
    last_hop = int(bench.topology.peer[bench.topology.nic(8, 0)])
    bench.world.transport.service[last_hop] = 0.975
    bench.run([bench.through(0, 8, 0), bench.through(1, 8, 0)], seconds=10.0)
    assert [t.cause for t in bench.judge.finish()] == ["incast"]


def test_flows_apart_and_an_elephant_beside_mice_are_healthy() -> None:
    bench = Bench()
    flows = [bench.through(0, 8, 0), bench.through(1, 9, 1), bench.through(2, 10, 1)]
    groups = [bench.world.add_group([flow]) for flow in flows]
    bench.world.table.cap[groups[2]] = 10 * GBIT

    def program() -> Program:
        yield Transfer([Part(group, 1e15) for group in groups])

    bench.world.start(program(), 0.0)
    bench.world.advance(10.0, np.full(bench.topology.ports, 1e9), lambda *_: None)
    assert bench.judge.finish() == []


def test_a_leaf_whose_uplinks_are_all_full_is_oversubscribed() -> None:
    bench = Bench(shape(ratio=0.5))
    flows = [
        path_flow(bench.topology, bench.topology.nic(a, r), bench.topology.nic(a + 8, r), 0, SPRAY)
        for a in range(8)
        for r in range(2)
    ]
    bench.run(flows, seconds=10.0)
    causes = {(t.cause, t.required) for t in bench.judge.finish()}
    assert ("oversubscription", True) in causes
    assert "ecmp_collision" not in {cause for cause, _ in causes}


def test_nodes_are_sampled_at_their_own_instants() -> None:
    bench = Bench()
    sampler = Sampler(bench.world, View(skew_s=0.5), seed=3)
    walls = {name: frame.wall_ns for name, frame in sampler.tick().frames}
    assert 0.3e9 < max(walls.values()) - min(walls.values()) < 0.6e9
    again = dict(sampler.tick().frames)
    for name, frame in again.items():
        assert 0.8e9 < frame.wall_ns - walls[name] < 1.2e9


def test_counters_never_decrease() -> None:
    run = build(draw_plan(4, "healthy", "fsdp"))
    before: dict[str, list[int | None]] = {}
    for _ in range(15):
        for name, frame in run.sampler.tick().frames:
            block = next(b for b in frame.blocks if b is not None and len(b) > 1)
            values = [int(v or 0) for v in block]
            old = before.get(name)
            if old is not None:
                assert all(n >= int(o or 0) for n, o in zip(values, old, strict=True))
            before[name] = list(values)


@pytest.mark.parametrize("transport", [ROCE, INFINIBAND, TCP])
def test_a_seed_is_one_world(transport: str) -> None:
    seed = next(s for s in range(50) if draw_plan(s, "fault").transport == transport)
    frames = []
    for _ in range(2):
        run = build(draw_plan(seed, "fault"))
        for _ in range(3):
            last = run.sampler.tick()
        frames.append(last.frames)
    assert frames[0] == frames[1]


def _in_step(bench: Bench, groups: list[list[Flow]]) -> list[float]:
    """The bytes/s of each group's flows, which move in step, after ten seconds."""
    numbers = [bench.world.add_group(flows) for flows in groups]

    def program() -> Program:
        yield Transfer([Part(number, 1e15) for number in numbers])

    bench.world.start(program(), 0.0)
    bench.world.advance(10.0, np.full(bench.topology.ports, 1e9), lambda *_: None)
    rates: list[float] = bench.state().rate.tolist()
    return rates


def _required(bench: Bench, *links: int) -> list[bool]:
    """Whether a collision at each of these links must be found."""
    required = [t for t in bench.judge.finish() if t.required and t.cause == "ecmp_collision"]
    names = [bench.topology.port_id(link) for link in links]
    return [any(name in truth.ports for truth in required) for name in names]


def _up(bench: Bench, number: int) -> int:
    return bench.topology.switches[bench.topology.leaves[0]].ups[number]


def test_a_link_that_is_down_is_avoided() -> None:
    topology = Topology(shape(), seed=4)
    leaf = topology.switches[topology.leaves[1]]
    far = int(topology.peer[leaf.ups[0]])
    topology.down.update({leaf.ups[0], far})
    assert topology.role[far] == DOWN
    used = {
        hop.link
        for key in range(200)
        for hop in topology.path(topology.nic(0, 0), topology.nic(15, 0), key, HASH)
    }
    assert far not in used


def test_flows_of_a_few_links_are_no_chance_where_they_are_many() -> None:
    assert _chance_of_few(7, 1, 8) == pytest.approx(8**-6)
    assert _chance_of_few(2, 1, 8) == pytest.approx(1 / 8)
    assert _chance_of_few(5, 8, 8) == pytest.approx(1.0)
