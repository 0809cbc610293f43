"""Receivers whose last hop is full, and what only looks like one: hand-made rates."""

from __future__ import annotations

import msgspec
import pytest

from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import Hello
from tests.builders import METRICS, LeafSpine, Watched, hello, neighbour, port
from tests.connections import Wires

GBPS = 1e9
SECONDS = 20


def below_one_leaf(hosts: int, **speeds_gbps: float) -> Watched:
    """Hosts of 400G below one leaf; `speeds_gbps` are those of slower hosts by name."""
    speeds = {}
    for name, gbps in speeds_gbps.items():
        for end in (f"{name}/eth0", f"leaf1/down{int(name[3:])}"):
            speeds[end] = gbps * GBPS
    return Watched(LeafSpine(uplinks=2, hosts=hosts, rate_bps=400 * GBPS, speeds=speeds))


def send(watched: Watched, sender: int, receiver: int, gbps: float) -> None:
    watched.fabric.send(gbps * GBPS, f"gpu{sender:03}/eth0", f"leaf1/down{receiver}")


def test_the_receiver_of_three_senders_is_named_while_a_ring_runs_at_full_rate() -> None:
    watched = below_one_leaf(hosts=12)
    for number in range(1, 9):
        send(watched, number, number % 8 + 1, 390)
    for sender in (9, 10, 11):
        send(watched, sender, 12, 130)
    (finding,) = watched.seconds(SECONDS).findings
    assert (finding.cause, finding.subject) == ("incast", "gpu012/eth0")
    assert "gpu009 r0, gpu010 r0, gpu011 r0" in finding.text
    assert 0.6 < finding.lost < 0.7
    assert finding.victims == ("gpu009/eth0", "gpu010/eth0", "gpu011/eth0")
    assert watched.opened() == ["incast gpu012/eth0"]


class WithoutALineRate(LeafSpine):
    """Whose gpu012 has none, as a host that was lost a while ago."""

    def _host(self, name: str, role: str) -> Host:
        host = super()._host(name, role)
        return msgspec.structs.replace(host, speeds=()) if name == "gpu012" else host


def test_a_receiver_whose_line_rate_is_not_known_is_not_full() -> None:
    watched = Watched(WithoutALineRate(uplinks=2, hosts=12, rate_bps=400 * GBPS))
    for sender in (9, 10, 11):
        send(watched, sender, 12, 130)
    assert watched.seconds(SECONDS).findings == ()


@pytest.mark.parametrize(("sent_gbps", "wrote_gbps"), [(200, 0), (130, 10)])
def test_three_senders_are_an_incast_beside_drops_and_writes_to_storage_that_is_not_watched(
    sent_gbps: float, wrote_gbps: float
) -> None:
    """UDP, of which its leaf drops a third, or TCP while all hosts write some Gb/s: what is sent is
    more than what is received, and fills no receiver."""
    fabric = LeafSpine(uplinks=2, hosts=12, rate_bps=400 * GBPS)
    watched = Watched(fabric, seen=("gpu", "leaf1"))
    for sender in (1, 2, 3):
        fabric.send(sent_gbps * GBPS, f"gpu{sender:03}/eth0")
    fabric.send(390 * GBPS, "leaf1/down8")
    for sender, receiver in ((4, 9), (5, 10), (6, 11)):
        send(watched, sender, receiver, sent_gbps)
    for number in range(1, 13):
        fabric.send(wrote_gbps * GBPS, f"gpu{number:03}/eth0", f"leaf1/up{1 + number % 2}")
    watched.seconds(SECONDS)
    assert watched.opened() == ["incast gpu008/eth0"]


def test_hosts_that_wait_as_much_as_its_senders_are_not_named() -> None:
    """Three hosts send to one; three more send as much to one host each, and wait as much."""
    fabric = LeafSpine(2, 12, 400 * GBPS, metrics=("ib_ext_tx_wait",))
    watched = Watched(fabric, seen=("gpu",))
    for sender, receiver in ((1, 8), (2, 8), (3, 8), (4, 9), (5, 10), (6, 11)):
        send(watched, sender, receiver, 130)
        fabric.counted[f"gpu{sender:03}/eth0", "ib_ext_tx_wait"] = 0.6 * 400 * GBPS / 64
    (finding,) = watched.seconds(SECONDS).findings
    assert (finding.cause, finding.victims) == ("incast", ())
    assert "from at least 3 of 6 senders" in finding.text


class WithQueuePairs(LeafSpine):
    """Hosts of 400G below one leaf that report their connections: pairs of numbers of hosts.

    Their NICs have counters `metrics` as well.
    """

    def __init__(self, hosts: int, *pairs: tuple[int, int], metrics: tuple[str, ...] = ()) -> None:
        super().__init__(uplinks=2, hosts=hosts, rate_bps=400 * GBPS, metrics=metrics)
        self._counters = (*METRICS, *metrics)
        self._wires = Wires()
        for number, (src, dst) in enumerate(pairs):
            ends = (f"gpu{src:03}/eth0", f"gpu{dst:03}/eth0")
            self._wires.connect(*ends, 70 + number, 170 + number)

    def hellos(self) -> dict[str, Hello]:
        said = super().hellos()
        for name in self.servers:
            nic, near = port("eth0", f"{name}-eth0", self._counters), f"leaf1-down{int(name[3:])}"
            pairs = self._wires.report(f"{name}/eth0")
            said[name] = hello(nic, neighbour("eth0", near), pairs)
        return said


def in_step(watched: Watched) -> Watched:
    """Three hosts send to gpu008, and three pairs as fast."""
    for sender, receiver in ((1, 8), (2, 8), (3, 8), (4, 9), (5, 10), (6, 11)):
        send(watched, sender, receiver, 130)
    return watched


def test_the_senders_of_an_incast_have_connections_to_the_receiver() -> None:
    (finding,) = in_step(below_one_leaf(hosts=11)).seconds(SECONDS).findings
    assert "from at least 3 of 6 senders" in finding.text
    pairs = ((1, 8), (2, 8), (3, 8), (4, 9), (5, 10), (6, 11))
    (finding,) = in_step(Watched(WithQueuePairs(11, *pairs))).seconds(SECONDS).findings
    assert (finding.cause, finding.subject) == ("incast", "gpu008/eth0")
    assert "from 3 senders (gpu001 r0, gpu002 r0, gpu003 r0)" in finding.text


def test_of_senders_with_idle_connections_to_two_full_receivers_nobody_is_named() -> None:
    """Eight hosts have connections to both receivers, and each sends to one: all show a queue."""
    senders, receivers = range(1, 9), (9, 10)
    mesh = [(sender, receiver) for sender in senders for receiver in receivers]
    metrics = ("rdma_ecn_marked", "rdma_cnp_handled")
    watched = Watched(WithQueuePairs(24, *mesh, metrics=metrics))
    for sender in senders:
        send(watched, sender, receivers[sender > 4], 97.5)
        watched.fabric.counted[f"gpu{sender:03}/eth0", "rdma_cnp_handled"] = 20_000
    for sender in range(11, 24):
        send(watched, sender, sender + 1, 100)
    for receiver in receivers:
        watched.fabric.counted[f"gpu{receiver:03}/eth0", "rdma_ecn_marked"] = 2e6
    found = watched.seconds(SECONDS).findings
    assert {each.subject for each in found} == {"gpu009/eth0", "gpu010/eth0"}
    assert all("from at least 4 of 8 senders" in each.text for each in found)


def test_connections_that_do_not_explain_what_a_receiver_gets_decide_nothing() -> None:
    (finding,) = in_step(Watched(WithQueuePairs(11, (4, 8), (5, 10)))).seconds(SECONDS).findings
    assert finding.subject == "gpu008/eth0"
    assert "from at least 3 of 6 senders" in finding.text


def test_a_ring_at_full_rate_is_no_incast() -> None:
    watched = below_one_leaf(hosts=8)
    for number in range(1, 9):
        send(watched, number, number % 8 + 1, 390)
    watched.seconds(SECONDS)
    assert watched.changes == []


def test_a_slower_receiver_that_one_sender_fills_is_no_incast() -> None:
    """A host of 200G gets all from one of 400G: one sender, no other shares its last hop."""
    watched = below_one_leaf(hosts=8, gpu002=200)
    send(watched, 1, 2, 195)
    for sender, receiver in ((3, 4), (4, 5), (5, 6), (6, 7)):
        send(watched, sender, receiver, 100)
    watched.seconds(SECONDS)
    assert watched.changes == []


def test_a_slower_receiver_that_two_senders_share_is_an_incast() -> None:
    watched = below_one_leaf(hosts=8, gpu002=200)
    send(watched, 1, 2, 97)
    send(watched, 3, 2, 98)
    watched.seconds(SECONDS)
    assert watched.opened() == ["incast gpu002/eth0"]


def test_senders_that_take_turns_are_no_incast() -> None:
    """Stages of a pipeline: each sends at its line rate, one after the other."""
    watched = below_one_leaf(hosts=8)

    def traffic(second: int) -> None:
        watched.fabric.silence()
        send(watched, 1 + second // 2 % 2, 8, 392)

    watched.seconds(2 * SECONDS, traffic)
    assert watched.changes == []


def test_the_slowest_host_of_an_all_to_all_is_no_incast() -> None:
    """The others wait for what it has to send and to receive."""
    watched = below_one_leaf(hosts=8)
    for other in range(1, 8):
        send(watched, other, 8, 56)
        send(watched, 8, other, 56)
    watched.seconds(SECONDS)
    assert watched.changes == []


@pytest.mark.parametrize("answers", [True, False])
def test_hosts_of_an_all_to_all_whose_uplinks_are_full_send_for_longer_than_they_receive(
    answers: bool,
) -> None:
    """Two receivers of 400G that are full for three seconds of every eight. What they send to the
    others takes as long, and six seconds from the second minute on; else they only receive."""
    watched = below_one_leaf(hosts=12)
    began, slowed = (66, 66, 66, 0, 0, 0, 0, 0), (45, 45, 45, 21, 21, 21, 0, 0)

    def traffic(second: int) -> None:
        watched.fabric.silence()
        step = second % 8
        for receiver in (11, 12):
            for sender in range(1, 7):
                send(watched, sender, receiver, 66 if step < 3 else 0)
            for other in range(1, 7) if answers else ():
                send(watched, receiver, other, (began if second < 3 * SECONDS else slowed)[step])

    watched.seconds(6 * SECONDS, traffic)
    assert watched.opened() == ([] if answers else ["incast gpu011/eth0", "incast gpu012/eth0"])


@pytest.mark.parametrize(("senders", "handled"), [(3, 0), (3, 6_000), (11, 0), (11, 6_000)])
def test_marks_of_a_receiver_that_is_not_full_are_of_a_queue_where_its_senders_handle_cnps(
    senders: int, handled: int
) -> None:
    metrics = ("rdma_ecn_marked", "rdma_cnp_handled")
    watched = Watched(LeafSpine(uplinks=2, hosts=12, rate_bps=400 * GBPS, metrics=metrics))
    for sender in range(1, senders + 1):
        send(watched, sender, 12, 345 / senders)
        watched.fabric.counted[f"gpu{sender:03}/eth0", "rdma_cnp_handled"] = handled
    watched.fabric.counted["gpu012/eth0", "rdma_ecn_marked"] = 3e6
    watched.seconds(SECONDS)
    assert watched.opened() == (["incast gpu012/eth0"] if handled else [])


@pytest.mark.parametrize("elephant_gbps", [0, 380])
def test_an_elephant_elsewhere_hides_no_incast(elephant_gbps: float) -> None:
    metrics = ("rdma_ecn_marked", "rdma_cnp_handled")
    watched = Watched(LeafSpine(uplinks=2, hosts=12, rate_bps=400 * GBPS, metrics=metrics))
    send(watched, 1, 2, elephant_gbps)
    for sender in (9, 10, 11):
        send(watched, sender, 12, 130)
        watched.fabric.counted[f"gpu{sender:03}/eth0", "rdma_cnp_handled"] = 6_000
    watched.fabric.counted["gpu012/eth0", "rdma_ecn_marked"] = 1e6
    watched.seconds(SECONDS)
    assert watched.opened() == ["incast gpu012/eth0"]


def test_a_receiver_may_get_all_from_a_sender_that_is_as_fast() -> None:
    """TCP: whether the elephant goes to gpu002 and the others to gpu012, or the other way round,
    bytes alone do not say."""
    watched = below_one_leaf(hosts=12)
    send(watched, 1, 2, 335)
    for sender in (1, 4, 5, 6, 7, 8, 9, 10, 11):
        send(watched, sender, 12, 44)
    watched.seconds(SECONDS)
    assert watched.opened() == []


def test_a_sender_that_takes_turns_is_the_only_one_of_its_receivers() -> None:
    """One sends at line rate to one host, then to another; slower pairs of another job explain what
    these get, but do not send to them."""
    watched = below_one_leaf(hosts=24)

    def traffic(second: int) -> None:
        watched.fabric.silence()
        send(watched, 1, 20 + second // 6 % 2, 392)
        for number, gbps in enumerate(JOB_GBPS):
            send(watched, 3 + 2 * number, 4 + 2 * number, gbps)

    watched.seconds(60, traffic)
    assert watched.opened() == []


def test_an_elephant_with_a_few_mice_to_the_same_receiver_is_no_incast() -> None:
    watched = below_one_leaf(hosts=20)
    send(watched, 1, 2, 372)
    for sender in (3, 5, 7, 9):
        send(watched, sender, 2, 4)
    for number, gbps in enumerate(JOB_GBPS):
        send(watched, 3 + 2 * number, 4 + 2 * number, gbps)
    watched.seconds(SECONDS)
    assert watched.opened() == []


def test_a_late_frame_does_not_make_an_incast_of_two_senders_that_wait_for_nothing() -> None:
    """Without its counters for a second, an RDMA NIC is still one."""
    metrics = ("rdma_ecn_marked", "rdma_cnp_handled")
    watched = Watched(LeafSpine(uplinks=2, hosts=6, rate_bps=400 * GBPS, metrics=metrics))
    for sender in (1, 2):
        send(watched, sender, 6, 190)
    watched.seconds(SECONDS)
    made = watched.fabric.step()
    without = tuple(each for each in made.frames if each[0] != "gpu006")
    watched.pipeline.accept(msgspec.structs.replace(made, frames=without))
    watched.seconds(SECONDS)
    assert watched.changes == []


def test_senders_that_do_not_slow_down_lose_what_is_dropped() -> None:
    """UDP: 960 Gb/s are sent, 400 arrive."""
    watched = below_one_leaf(hosts=6)
    for sender in (1, 2, 3):
        watched.fabric.sent[f"gpu{sender:03}/eth0"] = 320 * GBPS
        watched.fabric.received[f"leaf1/down{sender}"] = 320 * GBPS
    watched.fabric.sent["leaf1/down6"] = watched.fabric.received["gpu006/eth0"] = 400 * GBPS
    (finding,) = watched.seconds(SECONDS).findings
    assert (finding.cause, finding.subject) == ("incast", "gpu006/eth0")
    assert finding.lost == pytest.approx(1 - 400 / 960, abs=0.02)


def test_a_ring_of_many_hosts_hides_no_incast() -> None:
    """One full receiver more than senders at line rate, however many there are."""
    watched = below_one_leaf(hosts=44)
    for number in range(1, 41):
        send(watched, number, number % 40 + 1, 390)
    for sender in (41, 42, 43):
        send(watched, sender, 44, 130)
    watched.seconds(SECONDS)
    assert watched.opened() == ["incast gpu044/eth0"]


JOB_GBPS = (48, 93, 98, 193, 198, 201, 205)
"""What seven senders of an incast send to others, so that their rates tell nothing."""


def test_a_receiver_that_is_always_full_has_several_senders_whoever_they_are() -> None:
    watched = below_one_leaf(hosts=15)
    for number, gbps in enumerate(JOB_GBPS, start=1):
        send(watched, number, 8 + number, gbps)
        send(watched, number, 8, 57)
    (finding,) = watched.seconds(SECONDS).findings
    assert (finding.cause, finding.subject) == ("incast", "gpu008/eth0")
    assert "from at least 2 of 7 senders, which lose up to 42 %" in finding.text


@pytest.mark.parametrize(("full_s", "is_found"), [(5, True), (3, False)])
def test_senders_that_send_most_elsewhere_lose_little_to_a_receiver_that_is_full_at_times(
    full_s: int, is_found: bool
) -> None:
    """In each five seconds it is full for some. Of three, they are as busy with others for nearly
    as long."""
    watched = below_one_leaf(hosts=15)

    def traffic(second: int) -> None:
        watched.fabric.silence()
        for number, gbps in enumerate(JOB_GBPS, start=1):
            send(watched, number, 8 + number, gbps)
            send(watched, number, 8, 57 if second % 5 < full_s else 20)

    watched.seconds(40, traffic)
    assert watched.opened() == ["incast gpu008/eth0"] * is_found


def test_a_receiver_that_nodes_which_are_not_watched_fill_is_no_incast() -> None:
    """Storage sends to gpu008 over an uplink, beside the traffic of a job."""
    watched = below_one_leaf(hosts=15)
    for number, gbps in enumerate(JOB_GBPS, start=1):
        send(watched, number, 8 + number, gbps)
    watched.fabric.send(398 * GBPS, "spine1/swp1", "leaf1/down8")
    watched.seconds(SECONDS)
    assert watched.opened() == []


PAUSED = "pfc_rx_pause_us_prio3"
US_PER_S = 1e6


def in_bursts(senders_wait: bool, seen: tuple[str, ...] = ("",)) -> Watched:
    """Bursts of most of a second to gpu012 every three seconds, in no step with the ticks; the
    senders are paused, else they wait for nothing."""
    fabric = LeafSpine(uplinks=2, hosts=12, rate_bps=400 * GBPS, metrics=(PAUSED,))
    watched = Watched(fabric, seen=seen)

    def traffic(second: int) -> None:
        watched.fabric.silence()
        gbps = (80, 27, 1)[second % 3]
        for sender in (1, 2, 3, 4):
            send(watched, sender, 12, gbps)
            paused_us = gbps / 100 * 0.7 * US_PER_S if senders_wait else 0
            watched.fabric.counted[f"gpu{sender:03}/eth0", PAUSED] = paused_us

    watched.seconds(2 * SECONDS, traffic)
    return watched


def test_bursts_that_fill_no_whole_second_are_an_incast_where_its_senders_wait_together() -> None:
    assert in_bursts(senders_wait=True).opened() == ["incast gpu012/eth0"]
    assert in_bursts(senders_wait=True, seen=("gpu",)).opened() == ["incast gpu012/eth0"]


@pytest.mark.parametrize(
    ("metrics", "dropped_per_s", "is_found"),
    [
        pytest.param((), 30_000, True, id="drops"),
        pytest.param((), 3_000, False, id="drops little"),
        pytest.param(("rdma_cnp_handled",), 30_000, False, id="RDMA: marks and CNPs count"),
    ],
)
def test_bursts_that_fill_no_whole_second_are_an_incast_where_the_last_hop_drops(
    metrics: tuple[str, ...], dropped_per_s: float, is_found: bool
) -> None:
    """TCP: three hosts send to one for three quarters of each second; its switch drops nothing
    before pairs of others."""
    dropped = "phy_tx_discards"
    watched = Watched(LeafSpine(2, 12, 400 * GBPS, metrics=metrics, leaf_metrics=(dropped,)))
    for sender in (1, 2, 3):
        send(watched, sender, 8, 100)
    for one, other in ((4, 9), (5, 10), (6, 11), (7, 12)):
        send(watched, one, other, 200)
        send(watched, other, one, 200)
    watched.fabric.counted["leaf1/down8", dropped] = dropped_per_s
    found = watched.seconds(SECONDS).findings
    assert [each.subject for each in found] == (["gpu008/eth0"] if is_found else [])
    for each in found:
        values = [item.value for item in each.evidence]
        assert "marks or drops of the link's own queue" in values


def test_the_queue_of_a_last_hop_that_its_receiver_pauses_is_no_incast() -> None:
    """Three hosts send to one that takes half of line rate, as for its PCIe."""
    dropped = "phy_tx_discards"
    watched = Watched(LeafSpine(2, 12, 400 * GBPS, leaf_metrics=(dropped, PAUSED)))
    for sender in (1, 2, 3):
        send(watched, sender, 8, 70)
    for one, other in ((4, 9), (5, 10), (6, 11), (7, 12)):
        send(watched, one, other, 200)
        send(watched, other, one, 200)
    watched.fabric.counted["leaf1/down8", dropped] = 30_000
    watched.fabric.counted["leaf1/down8", PAUSED] = 0.5 * US_PER_S
    watched.seconds(SECONDS)
    assert not any("incast" in each for each in watched.opened())


@pytest.mark.parametrize("shows", ["drops", "waiting", ""])
def test_senders_that_receive_as_long_are_slowed_where_they_or_the_receiver_show_a_queue(
    shows: str,
) -> None:
    """Three hosts of 200G send 130 Gb/s to one of 400G, and receive from one each at line rate."""
    names = [f"gpu{number:03}/eth0" for number in range(1, 7)]
    names += [f"leaf1/down{number}" for number in range(1, 7)]
    waits = ("ib_ext_tx_wait",) if shows == "waiting" else ()
    dropped = "phy_tx_discards"
    speeds = dict.fromkeys(names, 200 * GBPS)
    fabric = LeafSpine(2, 12, 400 * GBPS, speeds=speeds, metrics=waits, leaf_metrics=(dropped,))
    watched = Watched(fabric)
    for sender in (1, 2, 3):
        send(watched, sender, 12, 130)
        send(watched, 3 + sender, sender, 195)
        if waits:
            fabric.counted[f"gpu{sender:03}/eth0", *waits] = 0.3 * 200 * GBPS / 64
    if shows == "drops":
        fabric.counted["leaf1/down12", dropped] = 30_000
    watched.seconds(SECONDS)
    assert watched.opened() == (["incast gpu012/eth0"] if shows else [])


@pytest.mark.parametrize("is_spine", [True, False])
def test_what_waits_for_a_spine_does_not_wait_for_the_receiver(is_spine: bool) -> None:
    """Four hosts send to one, and four others over an uplink that is full: their leaf pauses hosts
    for the receiver, or because a spine pauses it."""
    counts = (PAUSED,)
    fabric = LeafSpine(2, 12, 400 * GBPS, metrics=counts, leaf_metrics=counts)
    watched = Watched(fabric)
    for sender in (8, 9, 10, 11):
        send(watched, sender, 12, 98)
    for sender in (1, 2, 3, 4):
        fabric.send(100 * GBPS, f"gpu{sender:03}/eth0", "leaf1/up1")
        paused = sender if is_spine else sender + 7
        fabric.counted[f"gpu{paused:03}/eth0", PAUSED] = 0.6 * US_PER_S
    fabric.counted["leaf1/up1", PAUSED] = 0.6 * US_PER_S * is_spine
    (finding,) = (each for each in watched.seconds(SECONDS).findings if each.cause == "incast")
    waiting = {each.name: each.value for each in finding.evidence}["ports that wait for it"]
    assert waiting == (0 if is_spine else 4)


def test_drops_of_what_storage_sends_to_a_host_are_no_incast_of_those_that_write_there() -> None:
    """Six hosts write to storage that is not watched, and one reads from it."""
    dropped = "phy_tx_discards"
    fabric = LeafSpine(4, 12, 400 * GBPS, leaf_metrics=(dropped,))
    for number in range(1, 7):
        fabric.send(130 * GBPS, f"gpu{number:03}/eth0", f"leaf1/up{1 + number % 4}")
    fabric.send(150 * GBPS, "spine1/swp1", "spine2/swp1")
    fabric.send(300 * GBPS, "leaf1/down8")
    fabric.counted["leaf1/down8", dropped] = 100 * 300
    watched = Watched(fabric)
    watched.seconds(SECONDS)
    assert watched.opened() == []


def test_bursts_that_nobody_waits_for_are_no_incast() -> None:
    assert in_bursts(senders_wait=False).opened() == []


@pytest.mark.parametrize(
    ("down", "opened"),
    [(set(), {"incast"}), ({"leaf1/up1", "spine1/swp1"}, {"link_down"})],
)
def test_marks_below_line_rate_are_of_a_broken_cable_before_the_last_hop(
    down: set[str], opened: set[str]
) -> None:
    """What goes around a cable that is down queues elsewhere, and arrives marked."""
    metrics = ("rdma_ecn_marked", "rdma_cnp_handled")
    watched = Watched(LeafSpine(uplinks=2, hosts=12, rate_bps=400 * GBPS, metrics=metrics))
    watched.seconds(2)
    for sender in (9, 10, 11):
        send(watched, sender, 12, 105)
        watched.fabric.counted[f"gpu{sender:03}/eth0", "rdma_cnp_handled"] = 6_000
    watched.fabric.counted["gpu012/eth0", "rdma_ecn_marked"] = 3e6
    watched.fabric.down = down
    watched.seconds(SECONDS)
    assert {each.split()[0] for each in watched.opened()} == opened


def test_slower_nics_that_send_at_their_line_rate_lose_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two senders of 200G just fill a receiver of 400G, whatever its marks say."""
    metrics = ("rdma_ecn_marked", "rdma_cnp_handled")
    speeds = dict.fromkeys(
        ("gpu009/eth0", "gpu010/eth0", "leaf1/down9", "leaf1/down10"), 200 * GBPS
    )
    fabric = LeafSpine(uplinks=2, hosts=12, rate_bps=400 * GBPS, speeds=speeds, metrics=metrics)
    watched = Watched(fabric)
    for sender in (9, 10):
        send(watched, sender, 12, 198)
        fabric.counted[f"gpu{sender:03}/eth0", "rdma_cnp_handled"] = 60_000
    fabric.counted["gpu012/eth0", "rdma_ecn_marked"] = 3e6
    watched.seconds(SECONDS)
    assert watched.opened() == []
    assert not caplog.records
