"""A collision, and none, as it is seen: polled seldom, by pages that are refreshed seldom, in
bursts, by some of the switches, and by NICs that count one sign and not another."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from fabmon.analysis.finding import Change
from tests.builders import LeafSpine, Watched, new_pipeline

GBPS = 1e9
COLLISION = ["ecmp_collision leaf1/up1"]


class Polled(LeafSpine):
    """Four hosts of 400G below four uplinks, two of them on the first."""

    def collide(self, gbps: float = 195) -> None:
        self.send(gbps * GBPS, "gpu001/eth0", "leaf1/up1")
        self.send(gbps * GBPS, "gpu002/eth0", "leaf1/up1")
        self.send(gbps * GBPS, "gpu003/eth0", "leaf1/up2")
        self.send(gbps * GBPS, "gpu004/eth0", "leaf1/up3")

    def even(self) -> None:
        for number in range(1, 5):
            self.send(390 * GBPS, f"gpu00{number}/eth0", f"leaf1/up{number}")


def polled(polls: int, interval: int, was_busy: bool) -> list[tuple[int, str]]:
    """What opens, and in which poll, where all nodes are read each `interval` seconds: the hosts
    send nothing, or evenly, until poll 6, and collide then."""
    fabric = Polled(4, 4, 400 * GBPS)
    pipeline = new_pipeline(fabric.hosts, interval)
    found = []
    for poll in range(polls):
        fabric.silence()
        if poll >= 6:
            fabric.collide()
        elif was_busy:
            fabric.even()
        first, *rest = [fabric.step() for _ in range(interval)]
        made = rest[-1] if rest else first
        made = msgspec.structs.replace(made, seq=poll, hellos=first.hellos, statuses=first.statuses)
        scene = pipeline.accept(made)
        found += [
            (poll, f"{finding.cause} {finding.subject}")
            for change, finding in scene.changes
            if change is Change.OPEN
        ]
    return found


@pytest.mark.parametrize("interval", [1, 2, 5, 10])
@pytest.mark.parametrize(("was_busy", "polls"), [(False, 3), (True, 6)])
def test_a_collision_is_found_in_three_polls_however_far_apart(
    interval: int, was_busy: bool, polls: int
) -> None:
    """Where all links were full of one host each, it takes until these polls are past."""
    ((poll, found),) = polled(14, interval, was_busy)
    assert [found] == COLLISION
    assert poll < 6 + polls
    assert polled(6, interval, was_busy) == []


class Refreshed(Polled):
    """Its switches' counters are those of a page that is made anew each five seconds, as of SNMP
    agents."""

    def _port_values(self, name: str, metrics: Sequence[str]) -> list[int]:
        values = super()._port_values(name, metrics)
        held = self.__dict__.setdefault("held", {})
        if name.startswith("gpu"):
            return values
        if self.seq % 5 == 0 or name not in held:
            held[name] = values
        return list(held[name])


@pytest.mark.parametrize("collides", [True, False])
def test_switches_that_are_refreshed_each_five_seconds(collides: bool) -> None:
    fabric = Refreshed(4, 4, 400 * GBPS)
    watched = Watched(fabric)
    fabric.even()
    watched.seconds(21)
    assert watched.opened() == []
    if collides:
        fabric.silence()
        fabric.collide()
    watched.seconds(20)
    assert watched.opened() == COLLISION * collides


@pytest.mark.parametrize("full_s", [1, 2, 3])
def test_a_collision_in_bursts_of_a_few_seconds_of_six(full_s: int) -> None:
    watched = Watched(Polled(4, 4, 400 * GBPS))

    def traffic(second: int) -> None:
        watched.fabric.silence()
        if second % 6 < full_s:
            watched.fabric.collide()  # type: ignore[attr-defined]

    watched.seconds(60, traffic)
    assert watched.opened() == COLLISION
    (finding,) = {finding.key: finding for *_, finding in watched.changes}.values()
    assert finding.lost == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("seen", "subject"),
    [
        pytest.param(("gpu", "leaf"), "leaf1/up1", id="only leaves"),
        pytest.param(("leaf",), "leaf1/up1", id="only leaves, no hosts"),
    ],
)
def test_where_some_switches_are_watched(seen: tuple[str, ...], subject: str) -> None:
    fabric = Polled(4, 4, 400 * GBPS)
    watched = Watched(fabric, seen)
    fabric.collide()
    watched.seconds(20)
    assert watched.opened() == [f"ecmp_collision {subject}"]


def test_a_group_that_is_full_because_one_of_its_links_is_down_is_no_finding_of_its_own() -> None:
    fabric = Polled(4, 4, 400 * GBPS, metrics=("rdma_cnp_handled",))
    watched = Watched(fabric)
    fabric.even()
    watched.seconds(15)
    fabric.silence()
    fabric.down |= {"leaf1/up4", "spine4/swp1"}
    for host in fabric.servers:
        fabric.counted[f"{host}/eth0", "rdma_cnp_handled"] = 12_000
        fabric.send(3 * 97 * GBPS, f"{host}/eth0")
        for number in range(1, 4):
            fabric.send(97 * GBPS, f"leaf1/up{number}")
    watched.seconds(30)
    assert watched.opened() == ["link_down leaf1/up4"]


def test_hosts_that_count_pause_which_never_comes_but_no_cnps_say_nothing() -> None:
    """DCQCN keeps queues short of pause: bytes decide."""
    fabric = Polled(4, 4, 400 * GBPS, metrics=("pfc_rx_pause_us_prio3",))
    watched = Watched(fabric)
    fabric.collide()
    watched.seconds(20)
    assert watched.opened() == COLLISION


def test_flows_of_applications_that_fill_a_link_without_a_queue_lose_nothing() -> None:
    """Two hosts want 195 Gb/s each, and handle no CNPs."""
    fabric = Polled(4, 4, 400 * GBPS, metrics=("rdma_cnp_handled",))
    watched = Watched(fabric)
    fabric.collide()
    watched.seconds(30)
    assert watched.opened() == []


def test_a_calm_fabric_with_bursty_cnps_and_an_uneven_hash_is_silent() -> None:
    """64 hosts at a fifth of line rate over eight uplinks, 13 on the fullest; of each Gbit they
    handle 3 to 10 CNPs, in trains."""
    fabric = LeafSpine(8, 64, 400 * GBPS, metrics=("rdma_cnp_handled",))
    watched = Watched(fabric)
    links = [1 + (number * number + 3 * number) % 61 % 8 for number in range(64)]

    def traffic(second: int) -> None:
        for number in range(64):
            per_gbit = 3 + number % 8 if (second + number) % 3 else 0
            fabric.counted[f"gpu{number + 1:03}/eth0", "rdma_cnp_handled"] = 80 * per_gbit

    for number, link in enumerate(links, start=1):
        fabric.send(25 * GBPS, f"gpu{number:03}/eth0", f"leaf1/up{link}")
    watched.seconds(60, traffic)
    assert watched.opened() == []


def test_sprayed_nics_as_fast_as_the_other_links_may_share_the_full_one() -> None:
    """Each of eight hosts sends a part over every uplink: none has a link of its own."""
    fabric = LeafSpine(8, 8, 400 * GBPS)
    for number in range(1, 9):
        fabric.send(132 * GBPS, f"gpu{number:03}/eth0")
        fabric.send((400 if number == 1 else 120) * GBPS, f"leaf1/up{number}")
    watched = Watched(fabric)
    watched.seconds(20)
    assert "ecmp_collision leaf1/up1" in watched.opened()


def test_without_dcqcn_a_full_link_that_does_not_mark_may_have_a_queue() -> None:
    """Two hosts are paused and nobody has a CNP: packets cannot be marked, but for some of TCP."""
    pause, marks = "pfc_rx_pause_us_prio3", "phy_tx_ecn_marked"
    metrics = (pause, "rdma_cnp_handled")
    fabric = Polled(4, 4, 400 * GBPS, metrics=metrics, leaf_metrics=(marks,))
    watched = Watched(fabric)
    fabric.collide()
    fabric.send(50 * GBPS, "gpu003/eth0", "leaf1/up3")
    fabric.counted["leaf1/up3", marks] = 10_000
    for number in (1, 2):
        fabric.counted[f"gpu00{number}/eth0", pause] = 450_000
    watched.seconds(15)
    assert watched.opened() == COLLISION


def test_nics_that_begin_once_two_others_fill_a_link_do_not_share_it() -> None:
    """As after a deadlock that ended: two of 16 NICs of 200G are ahead of the rest, each at its
    line rate, and half of the others begin slowly."""
    names = [f"gpu{number:03}/eth0" for number in range(1, 17)]
    watched = Watched(LeafSpine(8, 16, 400 * GBPS, speeds=dict.fromkeys(names, 200 * GBPS)))
    ahead = (40, 168, 188, 188, 188, 138)
    fast, slow = (0, 0, 0, 116, 184, 138), (0, 0, 0, 60, 92, 92)

    def traffic(second: int) -> None:
        watched.fabric.silence()
        for number, name in enumerate(names if 5 <= second < 11 else ()):
            gbps = (ahead if number % 8 == 6 else slow if number % 4 == 0 else fast)[second - 5]
            watched.fabric.send(gbps * GBPS, name, f"leaf1/up{1 + number % 8}")

    watched.seconds(15, traffic)
    assert watched.opened() == []
