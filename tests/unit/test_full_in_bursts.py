"""Full links, judged by the queues that switches and hosts count: hand-made rates and counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.builders import LeafSpine, Watched

GBPS = 1e9
BITS_PER_WAIT = 64
"""Bits that a port could have sent in one count of xmit_wait."""
SECONDS = 20
METRICS = ("rdma_cnp_handled", "ib_ext_tx_wait")
MARKS, DROPS = "phy_tx_ecn_marked", "phy_tx_discards"


def half_of_each_second(
    cnps_per_s: float = 0,
    waits: float = 0,
    per_s: Mapping[str, float] | None = None,
    counter: str = MARKS,
    hosts_count: Sequence[str] = METRICS,
) -> Watched:
    """Exchanges of half a second in each second: four hosts of 400G share the first of four
    uplinks, each of three others has one for itself. All of them send 100 Gb/s meanwhile.

    The four handle CNPs, or wait for credits for a share of each second. Some of the leaf's ports
    mark so many packets with ECN, or drop them; without any, the leaf does not count them.
    """
    counted = (counter,) if per_s is not None else ()
    fabric = LeafSpine(4, 7, 400 * GBPS, metrics=hosts_count, leaf_metrics=counted)
    fabric.counted.update({(f"leaf1/{port}", counter): n for port, n in (per_s or {}).items()})
    watched = Watched(fabric)
    for number in range(1, 8):
        host = f"gpu{number:03}/eth0"
        watched.fabric.send(50 * GBPS, host, f"leaf1/up{max(1, number - 3)}")
        if number <= 4:
            watched.fabric.counted[host, "rdma_cnp_handled"] = cnps_per_s
            watched.fabric.counted[host, "ib_ext_tx_wait"] = waits * 400 * GBPS / BITS_PER_WAIT
    return watched


@pytest.mark.parametrize("shows", [{"cnps_per_s": 20_000}, {"waits": 0.375}, {"waits": 0.3}])
def test_a_link_that_is_full_for_half_of_each_second_is_found(shows: dict[str, Any]) -> None:
    """Its senders show a queue, and have less than their fair share of the group, 229 Gb/s. They
    wait for less of the time where they do not begin together."""
    (finding,) = half_of_each_second(**shows).seconds(SECONDS).findings
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up1")
    assert "50 % of line rate over 5 s, in bursts" in finding.text
    assert finding.lost == pytest.approx(1 - 100 / 229, abs=0.03)


@pytest.mark.parametrize(("marks_per_s", "is_found"), [(100_000, True), (40, False)])
def test_a_link_into_a_leaf_that_is_full_for_half_of_each_second_is_seen_at_its_receivers(
    marks_per_s: float, is_found: bool
) -> None:
    """Four hosts receive over the link from the first of four spines, and many marks. What a link
    into a leaf carries, the sending spine's counters say."""
    watched = Watched(LeafSpine(4, 7, 400 * GBPS, metrics=("rdma_ecn_marked",)))
    for number in range(1, 8):
        spine = max(1, number - 3)
        watched.fabric.send(50 * GBPS, f"spine{spine}/swp1", f"leaf1/down{number}")
        per_s = marks_per_s if number <= 4 else 0
        watched.fabric.counted[f"gpu{number:03}/eth0", "rdma_ecn_marked"] = per_s
    watched.seconds(SECONDS)
    assert watched.opened() == (["ecmp_collision spine1/swp1"] if is_found else [])


@pytest.mark.parametrize(("counter", "per_s"), [(MARKS, 200_000), (DROPS, 10_000)])
def test_a_link_whose_own_queue_marks_or_drops_packets_is_found_where_hosts_count_nothing(
    counter: str, per_s: float
) -> None:
    watched = half_of_each_second(per_s={"up1": per_s}, counter=counter, hosts_count=())
    (finding,) = watched.seconds(SECONDS).findings
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up1")
    assert "marks or drops of the link's own queue" in [each.value for each in finding.evidence]
    # It loses 56 % at most, which is critical where it is known.
    assert finding.severity == "warning"


@pytest.mark.parametrize(
    ("first_gbps", "drops_per_s", "is_found"),
    [
        pytest.param(340, 10_000, True, id="busy, and drops"),
        pytest.param(340, 0, False, id="drops nothing"),
        pytest.param(200, 10_000, False, id="half full: bursts of some of them"),
    ],
)
def test_a_busy_link_that_drops_is_found_where_all_hosts_of_a_collective_are_equally_fast(
    first_gbps: float, drops_per_s: float, is_found: bool
) -> None:
    """TCP, with pauses shorter than a second: six hosts send over eight uplinks, the first of which
    carries no equal parts of what they send."""
    fabric = LeafSpine(8, 6, 400 * GBPS, leaf_metrics=(DROPS,))
    for number in range(1, 7):
        fabric.send(215 * GBPS, f"gpu{number:03}/eth0")
    for number in range(1, 9):
        gbps = first_gbps if number == 1 else (6 * 215 - first_gbps) / 7
        fabric.send(gbps * GBPS, f"leaf1/up{number}")
    fabric.counted["leaf1/up1", DROPS] = drops_per_s
    found = Watched(fabric).seconds(SECONDS).findings
    assert [each.subject for each in found] == (["leaf1/up1"] if is_found else [])
    for each in found:
        assert (each.cause, each.victims) == ("ecmp_collision", ()), "nobody is known to be on it"
        assert "lose up to" in each.text


@pytest.mark.parametrize(
    ("paused_us", "cnps_per_s", "is_found"),
    [
        pytest.param(300_000, 0, True, id="no DCQCN"),
        pytest.param(0, 0, False, id="waits for nothing"),
        pytest.param(300_000, 10_000, False, id="DCQCN: its receivers have no marks"),
    ],
)
def test_the_full_link_of_a_spine_that_makes_others_wait_has_its_queue(
    paused_us: float, cnps_per_s: float, is_found: bool
) -> None:
    """Four hosts receive over the full link from the first of four spines, three have one each."""
    paused, cnps = "pfc_tx_pause_us_prio3", "rdma_cnp_handled"
    metrics = ("rdma_ecn_marked", cnps)
    fabric = LeafSpine(4, 7, 400 * GBPS, metrics=metrics, spine_metrics=(paused,))
    for number in range(1, 8):
        fabric.send(98 * GBPS, f"spine{max(1, number - 3)}/swp1", f"leaf1/down{number}")
    fabric.counted["spine1/swp1", paused] = paused_us
    fabric.counted["gpu007/eth0", cnps] = cnps_per_s
    watched = Watched(fabric)
    watched.seconds(SECONDS)
    assert watched.opened() == (["ecmp_collision spine1/swp1"] if is_found else [])


@pytest.mark.parametrize("counter", [MARKS, DROPS])
def test_hosts_that_count_and_have_next_to_nothing_are_not_slowed_by_a_link_that_marks_or_drops(
    counter: str,
) -> None:
    watched = half_of_each_second(per_s={"up1": 200_000}, counter=counter)
    assert watched.seconds(SECONDS).findings == ()


@pytest.mark.parametrize("counter", ["phy_rx_discards", "netdev_rx_drops", "ib_ext_tx_discards"])
def test_what_is_refused_on_arrival_and_what_infiniband_discards_is_no_queue(counter: str) -> None:
    watched = half_of_each_second(per_s={"up1": 10_000}, counter=counter, hosts_count=())
    assert watched.seconds(SECONDS).findings == ()


@pytest.mark.parametrize("seconds", [1, 2])
def test_a_full_link_that_drops_in_few_seconds_is_judged_by_its_senders(seconds: int) -> None:
    """They count no CNPs: the link just carries what they send."""
    fabric = LeafSpine(4, 4, 400 * GBPS, metrics=METRICS, leaf_metrics=(DROPS,))
    for number in (1, 2):
        fabric.send(194 * GBPS, f"gpu{number:03}/eth0", "leaf1/up1")
    watched = Watched(fabric)

    def drops(second: int) -> None:
        fabric.counted["leaf1/up1", DROPS] = 40_000 if second % 10 < seconds else 0

    watched.seconds(2 * SECONDS, drops)
    assert watched.opened() == []


@pytest.mark.parametrize(("counter", "per_s"), [(MARKS, 40_000), (DROPS, 1_000)])
def test_background_marks_and_drops_of_links_are_no_queue(counter: str, per_s: float) -> None:
    every = {f"up{number}": per_s * number for number in (1, 2, 3, 4)}
    watched = half_of_each_second(per_s=every, counter=counter)
    assert watched.seconds(SECONDS).findings == ()


@pytest.mark.parametrize(
    ("rise", "others", "is_found"),
    [
        pytest.param(6, (20,), True, id="they hardly differ"),
        pytest.param(3, (20,), False, id="three times is ordinary"),
        pytest.param(6, (5, 20, 40, 60), False, id="they differ much"),
        pytest.param(40, (400, 420, 440), True, id="all links drop, it drops twice as many"),
        pytest.param(26, (400, 420, 440), False, id="all links drop, it drops a few more"),
        pytest.param(40, (150, 400, 700), False, id="all links drop, and differ much"),
    ],
)
def test_a_link_that_drops_several_times_as_much_as_others_has_a_queue(
    rise: float, others: Sequence[float], is_found: bool
) -> None:
    """Nine links drop some packets of each Gbit that they send, the first one more."""
    watched = Watched(LeafSpine(9, 12, 400 * GBPS, leaf_metrics=(DROPS,)))
    for number in range(1, 13):
        uplink = max(1, number - 3)
        watched.fabric.send(50 * GBPS, f"gpu{number:03}/eth0", f"leaf1/up{uplink}")
        per_gbit = 20 * rise if uplink == 1 else others[uplink % len(others)]
        watched.fabric.counted[f"leaf1/up{uplink}", DROPS] = per_gbit * (200 if uplink == 1 else 50)
    watched.seconds(SECONDS)
    assert watched.opened() == (["ecmp_collision leaf1/up1"] if is_found else [])


def test_a_link_that_marks_far_less_than_another_of_its_switch_had_a_queue_for_moments() -> None:
    """It marks 1,000 packets of each Gbit; the other one, which one host fills, nearly all."""
    watched = half_of_each_second(per_s={"up1": 1_000 * 200, "up2": 30_000 * 50})
    watched.seconds(SECONDS)
    assert watched.opened() == []


def test_two_seconds_of_marks_are_no_collision() -> None:
    watched = half_of_each_second(per_s={"up1": 0})

    def marks(second: int) -> None:
        watched.fabric.counted["leaf1/up1", MARKS] = 200_000 if second in (8, 9) else 0

    watched.seconds(SECONDS, marks)
    assert watched.opened() == []


@pytest.mark.parametrize(
    ("marks_per_s", "is_found"),
    [
        pytest.param(None, True, id="not counted"),
        pytest.param({}, True, id="a counter that never moves"),
        pytest.param({"down3": 200_000}, False, id="the queue is elsewhere"),
        pytest.param({"up1": 400_000}, True, id="its own queue"),
        pytest.param({"spine4/swp1": 400_000}, False, id="the queue is at another switch"),
    ],
)
def test_a_full_link_that_marks_nothing_is_not_what_its_senders_are_slowed_by(
    marks_per_s: Mapping[str, float] | None, is_found: bool
) -> None:
    """Two hosts that handle CNPs fill an uplink."""
    counted = () if marks_per_s is None else (MARKS,)
    fabric = LeafSpine(
        4, 4, 400 * GBPS, metrics=METRICS, leaf_metrics=counted, spine_metrics=counted
    )
    for number in (1, 2):
        fabric.send(194 * GBPS, f"gpu{number:03}/eth0", "leaf1/up1")
        fabric.counted[f"gpu{number:03}/eth0", "rdma_cnp_handled"] = 20_000
    fabric.send(100 * GBPS, "leaf1/down3")
    fabric.send(100 * GBPS, "spine4/swp1")
    for port, count in (marks_per_s or {}).items():
        fabric.counted[port if "/" in port else f"leaf1/{port}", MARKS] = count
    watched = Watched(fabric)
    watched.seconds(SECONDS)
    assert watched.opened() == (["ecmp_collision leaf1/up1"] if is_found else [])


@pytest.mark.parametrize("waits", [{1, 2}, {1, 2, 3}, set()])
def test_hosts_whose_counters_are_stuck_are_not_calm(waits: set[int]) -> None:
    """Two of four hosts fill an uplink with half of their line rate each; those that count waiting
    have none, or nobody counts any."""
    fabric = LeafSpine(4, 4, 400 * GBPS, metrics=("ib_tx_wait",))
    for number in range(1, 5):
        fabric.send(196 * GBPS, f"gpu{number:03}/eth0", f"leaf1/up{max(1, number - 1)}")
        fabric.counted[f"gpu{number:03}/eth0", "ib_tx_wait"] = 2**33 if number in waits else 0
    watched = Watched(fabric)
    watched.seconds(SECONDS)
    assert "ecmp_collision leaf1/up1" in watched.opened()


def test_a_full_group_of_hosts_that_never_count_waiting_loses_an_unknown_part() -> None:
    watched = Watched(LeafSpine(uplinks=4, hosts=8, rate_bps=400 * GBPS, metrics=("ib_tx_wait",)))
    for number in range(1, 9):
        watched.fabric.send(190 * GBPS, f"gpu{number:03}/eth0", f"leaf1/up{1 + number % 4}")
        watched.fabric.counted[f"gpu{number:03}/eth0", "ib_tx_wait"] = 2**33 * (number < 3)
    group, stuck = watched.seconds(SECONDS).findings
    assert (group.cause, group.lost_is_upper_bound) == ("oversubscription", True)
    assert stuck.cause == "saturated_counter"


def test_senders_that_wait_and_send_most_elsewhere_wait_for_another_link() -> None:
    """Eight hosts wait and send 100 Gb/s each in bursts; the fullest of eight links carries 200."""
    watched = Watched(LeafSpine(uplinks=8, hosts=8, rate_bps=400 * GBPS, metrics=METRICS))
    for number in range(1, 9):
        host = f"gpu{number:03}/eth0"
        watched.fabric.send(100 * GBPS, host)
        watched.fabric.counted[host, "ib_ext_tx_wait"] = 0.25 * 400 * GBPS / BITS_PER_WAIT
        watched.fabric.send((200 if number == 1 else 90) * GBPS, f"leaf1/up{number}")
    assert watched.seconds(SECONDS).findings == ()


def test_a_link_that_is_half_full_is_no_collision_where_nobody_waits() -> None:
    assert half_of_each_second().seconds(SECONDS).findings == ()


def test_senders_that_wait_for_another_link_do_not_make_the_busiest_one_full() -> None:
    """They wait for so long that this one could carry more."""
    assert half_of_each_second(waits=0.7).seconds(SECONDS).findings == ()


def test_two_hosts_that_wait_on_different_uplinks_do_not_share_the_fuller_one() -> None:
    """Each of two hosts sends 160 Gb/s on average and waits for a fifth of that time; the first
    uplink carries others besides, that do not wait."""
    fabric = LeafSpine(uplinks=4, hosts=7, rate_bps=400 * GBPS, metrics=METRICS)
    for number in range(1, 8):
        host, waits = f"gpu{number:03}/eth0", number <= 2
        fabric.send((160 if waits else 16) * GBPS, host, f"leaf1/up{number if waits else 1}")
        fabric.counted[host, "ib_ext_tx_wait"] = 0.1 * waits * 400 * GBPS / BITS_PER_WAIT
    fabric.send(20 * GBPS, "leaf1/up3")
    fabric.send(20 * GBPS, "leaf1/up4")
    assert Watched(fabric).seconds(SECONDS).findings == ()


def test_marks_of_two_receivers_behind_different_links_are_no_queue_of_the_fuller_one() -> None:
    """Each gets 140 Gb/s, over links of its own from two spines; others receive some more by the
    first one, without marks."""
    watched = Watched(LeafSpine(4, 14, 400 * GBPS, metrics=("rdma_ecn_marked",)))
    for number in range(1, 15):
        gbps = 140 if number <= 2 else 80 / 12
        spine = number if number <= 2 else 1
        watched.fabric.send(gbps * GBPS, f"spine{spine}/swp1", f"leaf1/down{number}")
        per_s = 280_000 if number <= 2 else 0
        watched.fabric.counted[f"gpu{number:03}/eth0", "rdma_ecn_marked"] = per_s
    watched.seconds(SECONDS)
    assert watched.opened() == []


@pytest.mark.parametrize("seed", range(6))
def test_light_traffic_of_hosts_that_wait_for_a_few_per_cent_of_the_time_is_no_collision(
    seed: int,
) -> None:
    """Inference at a few per cent of line rate over random uplinks: none carries 90 %, and the
    background of 2 to 6 % of the time without credits is a third of the time with traffic."""
    random = np.random.default_rng(seed)
    fabric = LeafSpine(4, 8, 400 * GBPS, metrics=("ib_ext_tx_wait",))
    flows = [
        (server, random.uniform(5, 60), int(random.integers(1, 5)))
        for server in fabric.servers
        for _ in range(int(random.integers(0, 3)))
    ]
    for server in fabric.servers:
        wait = random.uniform(0.02, 0.06)
        fabric.counted[f"{server}/eth0", "ib_ext_tx_wait"] = wait * 400 * GBPS / 64
    watched = Watched(fabric)

    def traffic(_: int) -> None:
        fabric.silence()
        for server, gbps, uplink in flows:
            fabric.send(
                gbps * random.uniform(0.9, 1.1) * GBPS, f"{server}/eth0", f"leaf1/up{uplink}"
            )

    watched.seconds(SECONDS, traffic)
    assert watched.opened() == []
