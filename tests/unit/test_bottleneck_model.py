"""The bottleneck model: traffic whose sums are worked out by hand, and what must be found in it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from collectors.wire import Object
from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import NONE, build_structure
from fabmon.analysis.finding import Condition, Finding
from fabmon.analysis.model.bottlenecks import Bottleneck, Place
from fabmon.analysis.model.candidates import Candidate
from fabmon.analysis.model.causes import how_many
from fabmon.analysis.model.ends import crossing
from fabmon.analysis.model.shared_links import shared_links
from fabmon.analysis.model.signs import Gauge, signs
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.model import SWITCH, Host
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wire.messages import Hello
from fabmon.session.config import load
from tests.builders import (
    METRICS,
    SECOND_NS,
    LeafSpine,
    Watched,
    ecmp,
    hello,
    neighbour,
    new_pipeline,
    port,
)

LINE = 100e6
CNPS = "rdma_cnp_handled"
SECONDS = 20
BITS_PER_WAIT = 64
"""Bits that a port could have sent in one count of xmit_wait."""


@cache
def thresholds() -> ModelThresholds:
    return load(Path("/dev/null")).thresholds.model


def host(number: int) -> str:
    return f"gpu{number:03}/eth0"


def send(fabric: LeafSpine, number: int, uplink: int, bps: float, cnps_per_gbit: float = 0) -> None:
    """A flow of a host over an uplink of its leaf."""
    fabric.send(bps, host(number), f"leaf1/up{uplink}")
    fabric.counted[host(number), CNPS] = cnps_per_gbit * bps / 1e9


def found(fabric: LeafSpine) -> tuple[Finding, ...]:
    """The findings that are open after some seconds."""
    return Watched(fabric).seconds(SECONDS).findings


def udp_senders(third_bps: float) -> LeafSpine:
    """Two of 61.8 Mb/s on one uplink of 80, of which 43.6 are dropped and nowhere counted; a third
    one alone on the next."""
    fabric = LeafSpine(uplinks=3, hosts=3, rate_bps=80e6)
    for number, bps in ((1, 61.8e6), (2, 61.8e6), (3, third_bps)):
        fabric.send(bps, host(number))
    fabric.send(80e6, "leaf1/up1")
    fabric.send(third_bps, "leaf1/up2")
    return fabric


def test_equally_fast_udp_senders_on_a_full_uplink() -> None:
    """The leaf receives 185.4 Mb/s and sends 141.8; 1 - 80 / 123.6 is lost, and the third sender
    might be one of the two."""
    fabric = udp_senders(61.8e6)
    flows = dict(fabric.sent), dict(fabric.received)
    fabric.silence()
    watch = Watched(fabric)
    watch.seconds(8)
    fabric.sent, fabric.received = flows
    watch.seconds(5)
    assert watch.opened() == ["ecmp_collision leaf1/up1"]
    watch.seconds(SECONDS)
    assert watch.opened() == ["ecmp_collision leaf1/up1"]
    (finding,) = watch.seconds(1).findings
    assert finding.lost == pytest.approx(0.353, abs=0.01)
    assert "at least 2 of 3 ports share it and lose 35 %" in finding.text
    assert "gpu" not in finding.text
    assert finding.victims == ()


def test_udp_senders_beside_a_slower_one_are_named() -> None:
    """Two are as fast, and the third one's rate is that of the other link."""
    (finding,) = found(udp_senders(40e6))
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up1")
    assert finding.lost == pytest.approx(0.353, abs=0.01)
    assert finding.victims == ("leaf1/down1", "leaf1/down2")
    assert "2 ports share it (gpu001 r0, gpu002 r0)" in finding.text


def test_senders_that_fill_a_link_together_and_get_no_cnps_have_all_they_want() -> None:
    """Five at 20 % of line rate: 100 %, and none is slowed."""
    fabric = LeafSpine(uplinks=8, hosts=5, metrics=(CNPS,))
    for number in range(1, 6):
        send(fabric, number, 1, 0.2 * LINE)
    assert found(fabric) == ()


def test_two_senders_at_half_of_line_rate_with_cnps() -> None:
    """Each could send twice as much over the idle links."""
    fabric = LeafSpine(uplinks=4, hosts=4, metrics=(CNPS,))
    for number in (1, 2):
        send(fabric, number, 1, 0.5 * LINE, cnps_per_gbit=100)
    (finding,) = found(fabric)
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up1")
    assert finding.lost == pytest.approx(0.5, abs=0.02)
    assert finding.victims == ("leaf1/down1", "leaf1/down2")
    assert "(gpu001 r0, gpu002 r0)" in finding.text


def test_it_has_numbers_after_the_clock_was_set_back() -> None:
    fabric = LeafSpine(uplinks=4, hosts=4, metrics=(CNPS,))
    for number in (1, 2):
        send(fabric, number, 1, 0.5 * LINE, cnps_per_gbit=100)
    watched = Watched(fabric)
    watched.seconds(SECONDS)
    fabric.clock_off_ns = -7200 * SECOND_NS
    (finding,) = watched.seconds(SECONDS).findings
    numbers = {each.name: each.value for each in finding.evidence}
    assert numbers["link util"] == pytest.approx(100, abs=1)
    assert 0 < finding.lost < 1
    assert numbers["mean of"] == 5
    assert "·" not in finding.text


def test_of_links_in_a_ring_only_the_full_one_is_found() -> None:
    """Nine NICs at a third of line rate, three on one link and two on each of three others; an even
    share of 9 thirds over 4 links is 3/4 of what the full one carries."""
    fabric = LeafSpine(uplinks=4, hosts=9, metrics=(CNPS,))
    for number in range(1, 10):
        uplink = 1 if number <= 3 else 2 + number % 3
        send(fabric, number, uplink, 0.97 / 3 * LINE, 100 if uplink == 1 else 0)
    (finding,) = found(fabric)
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up1")
    assert finding.lost == pytest.approx(0.25, abs=0.02)


def test_fast_neighbours_do_not_limit_what_a_full_link_costs() -> None:
    """Six of eight NICs send 90 % of line rate over a link each, two share another one. An even use
    of all eight links would give all of them their line rate."""
    fabric = LeafSpine(uplinks=8, hosts=8, metrics=(CNPS,))
    for number in (1, 2):
        send(fabric, number, 1, 0.5 * LINE, cnps_per_gbit=100)
    for number in range(3, 9):
        send(fabric, number, number, 0.9 * LINE)
    (finding,) = found(fabric)
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up1")
    assert finding.lost == pytest.approx(0.5, abs=0.02)


def test_what_nics_send_elsewhere_while_a_link_is_not_full_is_not_of_it() -> None:
    """Three seconds of five two NICs share a link; in the others they send inside the leaf."""
    fabric = LeafSpine(uplinks=4, hosts=4, metrics=(CNPS,))
    watched = Watched(fabric)

    def traffic(second: int) -> None:
        fabric.silence()
        for number in (1, 2):
            if second % 5 < 3:
                send(fabric, number, 1, 0.5 * LINE, cnps_per_gbit=100)
            else:
                fabric.send(0.4 * LINE, host(number), host(number + 2))

    (finding,) = watched.seconds(SECONDS, traffic).findings
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up1")
    assert finding.lost == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(("waits", "loss"), [(0.5, "lose 50 %"), (1 / 6, "lose up to 50 %")])
def test_nics_that_wait_less_than_they_could_send_may_want_less(waits: float, loss: str) -> None:
    """Two NICs send half of the time. Those that wait in the other half would send then; those that
    wait a sixth want two thirds of line rate or more, and lose a quarter of that or more."""
    fabric = LeafSpine(uplinks=4, hosts=4, rate_bps=400e9, metrics=("ib_ext_tx_wait",))
    for number in (1, 2):
        fabric.send(0.5 * 400e9, host(number), "leaf1/up1")
        fabric.counted[host(number), "ib_ext_tx_wait"] = waits * 400e9 / BITS_PER_WAIT
    (finding,) = found(fabric)
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up1")
    assert loss in finding.text


@pytest.mark.parametrize("senders", [1, 2])
@pytest.mark.parametrize("metrics", [(), (CNPS,)])
def test_a_sender_at_its_line_rate_has_a_link_alone(senders: int, metrics: tuple[str, ...]) -> None:
    fabric = LeafSpine(uplinks=4, hosts=4, metrics=metrics)
    for number in range(1, senders + 1):
        send(fabric, number, number, 0.98 * LINE)
    assert found(fabric) == ()


class TwoLeaves(LeafSpine):
    """Two leaves with `below` hosts each and an uplink to each of four spines."""

    def __init__(self, below: int) -> None:
        super().__init__(uplinks=4, hosts=2 * below)
        self._cables: list[str] = []
        self._peer.clear()
        for leaf in (1, 2):
            for number in range(1, 5):
                self._connect(f"leaf{leaf}/up{number}", f"spine{number}/swp{leaf}")
            for place in range(1, below + 1):
                self._connect(f"leaf{leaf}/down{place}", host((leaf - 1) * below + place))

    def _connect(self, one: str, other: str) -> None:
        self._cable(one, other)
        self._cables += [one, other]

    @property
    def hosts(self) -> list[Host]:
        return [*super().hosts, self._host("leaf2", SWITCH)]

    def hellos(self) -> dict[str, Hello]:
        objects: dict[str, list[Object]] = {}
        for each in self._cables:
            node, _, name = each.partition("/")
            metrics = (*METRICS, CNPS) if node.startswith("gpu") else METRICS
            own = objects.setdefault(node, [])
            own.append(port(name, f"{node}-{name}", metrics))
            own.append(neighbour(name, self._peer[each].replace("/", "-")))
        for leaf in ("leaf1", "leaf2"):
            objects[leaf].append(ecmp("up1", "up2", "up3", "up4"))
        return {node: hello(*each) for node, each in objects.items()}


def test_many_senders_to_one_receiver_fill_no_uplink() -> None:
    """Eight at an eighth of line rate, two on each uplink: each could send eight times as much."""
    fabric = TwoLeaves(below=8)
    for number in range(1, 9):
        spine = 1 + number % 4
        path = (f"leaf1/up{spine}", f"spine{spine}/swp2", "leaf2/down1")
        fabric.send(LINE / 8, host(number), *path)
        fabric.counted[host(number), CNPS] = 100 * LINE / 8 / 1e9
    (finding,) = found(fabric)
    assert (finding.cause, finding.subject) == ("incast", host(9))
    assert finding.lost == pytest.approx(0.875, abs=0.02)


def test_twice_as_many_senders_as_a_group_carries() -> None:
    fabric = LeafSpine(uplinks=4, hosts=8, metrics=(CNPS,))
    for number in range(1, 9):
        send(fabric, number, 1 + number % 4, 0.49 * LINE, cnps_per_gbit=100)
    watch = Watched(fabric)
    (finding,) = watch.seconds(SECONDS).findings
    assert watch.opened() == ["oversubscription leaf1/uplinks"]
    assert finding.lost == pytest.approx(0.5, abs=0.02)


def test_five_of_eight_senders_on_one_of_four_links() -> None:
    """Senders of 100G on links of 400G: five get 80 each, three 100."""
    speeds = {f"leaf1/up{each}": 4 * LINE for each in range(1, 5)}
    speeds |= {f"spine{each}/swp1": 4 * LINE for each in range(1, 5)}
    fabric = LeafSpine(uplinks=4, hosts=8, metrics=(CNPS,), speeds=speeds)
    for number in range(1, 6):
        send(fabric, number, 1, 0.8 * LINE, cnps_per_gbit=100)
    for number in range(6, 9):
        send(fabric, number, number - 4, LINE)
    (finding,) = found(fabric)
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up1")
    assert finding.lost == pytest.approx(0.2, abs=0.01)
    numbers = {each.name: each.value for each in finding.evidence}
    assert numbers["imbalance"] == pytest.approx(56, abs=1)


def test_the_sums_of_a_group() -> None:
    """400, 100, 100 and 100 on links of 400: 175 on average, and of the fullest one 1.25 times as
    busy as its senders."""
    fabric = LeafSpine(uplinks=4, hosts=8)
    structure = build_structure(new_pipeline(fabric.hosts).accept(fabric.step()).snapshot.fabric)
    uplinks = next(each for each in shared_links(structure) if not each.is_inward)
    link = Candidate(
        row=int(uplinks.rows[0]),
        group=uplinks,
        receiver=NONE,
        util=np.ones(5, np.float32),
        group_util=np.full(5, 0.4375, np.float32),
        load_bps=4 * LINE,
        level=np.array([1, 0.25, 0.25, 0.25], np.float32),
        sharers=uplinks.ends[:5],
        rates=np.full(5, 0.8 * LINE, np.float32),
        ends_busy=0.8,
        alone=NONE,
        full=np.ones(5, np.bool_),
        slowed=uplinks.ends[:5],
        slowed_busy=0.8,
    )
    assert link.ratio == pytest.approx(1.25)
    bottleneck = Bottleneck(
        place=Place.LINK,
        link=link,
        lost=0.2,
        is_upper_bound=False,
        named=link.sharers,
        flows=5,
        slowed_by="",
        lasted_ticks=9,
        peak_util=1,
    )
    assert bottleneck.imbalance == pytest.approx(0.5625)
    assert bottleneck.links == 4
    assert how_many(bottleneck) == "at least 5 ports"
    assert how_many(replace(bottleneck, named=link.sharers[:3])) == "at least 3 of 5 ports"
    assert how_many(replace(bottleneck, are_all=True)) == "5 ports"


def steady(*bps: float) -> Floats:
    """[ports, ticks] the same rates in three ticks."""
    return np.repeat(np.array(bps, np.float32)[:, None], 3, axis=1)


def lines(count: int) -> Floats:
    return np.full(count, LINE, np.float32)


def no_signs(count: int) -> Floats:
    return np.full(count, np.nan, np.float32)


def test_a_nic_as_fast_as_a_link_has_it_alone() -> None:
    t = thresholds()
    matched = crossing(steady(60e6, 96e6), steady(48e6, 60e6, 48e6), lines(3), no_signs(3), t)
    assert matched.alone.tolist() == [1, -1]
    assert matched.free.tolist() == [True, False, True]
    assert matched.left == pytest.approx([48e6, 0, 48e6])


def test_of_equally_fast_nics_the_one_without_a_sign_is_alone() -> None:
    sign = np.array([2.0, 2.0, np.nan], np.float32)
    matched = crossing(steady(48e6, 96e6), steady(48e6, 48e6, 48e6), lines(3), sign, thresholds())
    assert matched.alone.tolist() == [2, -1]
    assert matched.free.tolist() == [True, True, False]


def test_a_nic_is_used_up_to_what_it_sends() -> None:
    """It accounts for 60 and 40 of its 100, not for another 60."""
    loads = steady(60e6, 40e6, 60e6)
    matched = crossing(loads, steady(100e6), lines(1), no_signs(1), thresholds())
    assert matched.alone.tolist() == [0, 0, -1]
    assert matched.left == pytest.approx([0])
    assert not matched.free.any()


def last_input(fabric: LeafSpine) -> DetectorInput:
    """What detectors get after some seconds."""
    seen: list[DetectorInput] = []

    def keep(inputs: DetectorInput) -> tuple[Condition, ...]:
        seen.append(inputs)
        return ()

    pipeline = new_pipeline(fabric.hosts, judged_by=lambda _: (keep,))
    for _ in range(SECONDS):
        pipeline.accept(fabric.step())
    return seen[-1]


@pytest.mark.parametrize("cnps_per_gbit", [0, 100])
def test_signs_of_counters_that_move_that_do_not_and_that_are_absent(cnps_per_gbit: float) -> None:
    """CNPs of 100 per gigabit are five times what no healthy fabric has: 1.5 log 5; of a NIC that
    has none that is calm. Drops that no switch counts say nothing."""
    t = thresholds()
    fabric = LeafSpine(uplinks=4, hosts=2, rate_bps=400e9, metrics=(CNPS,))
    send(fabric, 1, 1, 200e9, cnps_per_gbit)
    send(fabric, 2, 2, 200e9)
    inputs = last_input(fabric)
    seen, ports = signs(inputs, t), inputs.structure.fabric.ports
    first, second = (seen.sends[next(p.row for p in ports if p.id == host(n))] for n in (1, 2))
    expected = t.slope * np.log(5) if cnps_per_gbit else -t.clip
    assert [first, second] == pytest.approx([expected, -t.clip], abs=0.01)
    assert np.isnan([seen.own, seen.receives, seen.waits]).all()


def test_the_sign_of_a_level_beside_the_others() -> None:
    """Most have 10, so that 30 is raised; below 20 nothing has a queue."""
    t = thresholds()
    gauge = Gauge(last_input(LeafSpine()), t)
    level = np.array([10] * 5 + [25, 30 * np.e, 1e9], np.float32)
    odds = gauge.signs(level, floor=20, most=40)
    assert t.rise == 3
    assert odds[0] == pytest.approx(-t.slope * np.log(2), abs=0.001)
    assert odds[5] == 0
    assert odds[6] == pytest.approx(t.slope, abs=0.001)
    assert odds[7] == t.clip
    assert gauge.signs(np.zeros(8, np.float32), 20, 40) == pytest.approx([-t.clip] * 8)


def test_few_ports_have_no_usual_level() -> None:
    t = thresholds()
    gauge = Gauge(last_input(LeafSpine()), t)
    odds = gauge.signs(np.array([15, 25], np.float32), floor=20, most=40)
    assert odds == pytest.approx(t.slope * np.log([15 / 20, 25 / 20]), abs=0.001)


def test_where_most_ports_show_a_queue_their_level_is_not_the_usual_one() -> None:
    """Three times 100 is more than the 40 from which on every level counts as raised."""
    t = thresholds()
    gauge = Gauge(last_input(LeafSpine()), t)
    odds = gauge.signs(np.full(8, 100, np.float32), floor=20, most=40)
    assert odds == pytest.approx([t.slope * np.log(100 / 40)] * 8, abs=0.001)
