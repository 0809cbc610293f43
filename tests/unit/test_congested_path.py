"""Senders that are slowed behind switches that are not watched, whatever other switches are."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from fabmon.analysis.detectors.congested_path import is_below_reporting_switches
from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import build_structure
from fabmon.analysis.finding import Change
from fabmon.fabric.model import Host
from fabmon.feeds.demo.feed import DemoFeed
from tests.builders import LeafSpine, Watched, new_pipeline
from tests.scenario.test_scenarios import HERE, read

SECONDS = 25
RATE = 400e9
GBIT = 1e9
PAUSED_US = "pfc_rx_pause_us_prio3"
ROCE = ("rdma_cnp_handled", "rdma_cnp_sent", "rdma_ecn_marked", PAUSED_US)


def opened(watched: set[str], silent_from: int = SECONDS) -> list[str]:
    """What opens in a fabric with a collision at leaf1 from second 15 on."""
    scenario, _ = read(HERE / "collision.toml")
    feed = DemoFeed(scenario)

    def hears(node: str, second: int) -> bool:
        is_switch = node.startswith(("leaf", "spine"))
        return not is_switch or (node in watched and second < silent_from)

    pipeline = new_pipeline([host for host in feed.hosts if hears(host.name, 0)])
    found = []
    for second in range(SECONDS):
        tick = feed.step()
        tick = msgspec.structs.replace(
            tick,
            hellos=tuple(each for each in tick.hellos if hears(each[0], second)),
            frames=tuple(each for each in tick.frames if hears(each[0], second)),
            statuses=tuple(each for each in tick.statuses if hears(each.node, second)),
        )
        for change, finding in pipeline.accept(tick).changes:
            if change is Change.OPEN:
                found.append(f"{finding.cause} {finding.subject}")
    return found


@pytest.mark.parametrize("watched", [set(), {"leaf2"}, {"spine1"}])
def test_switches_that_do_not_see_it_do_not_silence_the_hosts(watched: set[str]) -> None:
    (found,) = opened(watched)
    assert found.startswith("congested_path ")


def test_switches_that_fell_silent_do_not_silence_the_hosts() -> None:
    every = {"leaf1", "leaf2", *(f"spine{number}" for number in range(1, 5))}
    assert opened(every, silent_from=12) == ["congested_path leaf1 to leaf2"]


@pytest.mark.parametrize("are_named", [True, False])
def test_a_rail_is_below_its_switch_though_nothing_names_its_cable_any_more(
    are_named: bool,
) -> None:
    """LLDP has stopped at both ends: its peer is known from before."""
    feed = DemoFeed(read(HERE / "collision.toml")[0])
    pipeline = new_pipeline(feed.hosts)
    snapshot = [pipeline.accept(feed.step()).snapshot for _ in range(3)][-1]
    structure = build_structure(snapshot.fabric)
    if not are_named:
        nodes = tuple(
            msgspec.structs.replace(
                node,
                ports=tuple(
                    msgspec.structs.replace(each, cable=None, peer=None) for each in node.ports
                ),
            )
            for node in snapshot.fabric.nodes
        )
        ports = tuple(
            msgspec.structs.replace(each, cable=None, peer=None) for each in snapshot.fabric.ports
        )
        fabric = msgspec.structs.replace(snapshot.fabric, nodes=nodes, ports=ports)
        structure = build_structure(fabric, structure, structure.peer)
        assert not len(structure.leaves)
    assert is_below_reporting_switches(DetectorInput(snapshot, structure))[structure.is_rail].all()


def test_a_switch_that_sees_it_reports_it_alone() -> None:
    assert opened({"leaf1"}) == ["ecmp_collision leaf1/swp19"]


class WatchedHosts(Watched):
    """Sixteen hosts of a ring, each sending to the next, without switches; some NICs are `slow`."""

    def __init__(
        self, util: float = 0.7, slow: Sequence[int] = (), metrics: Sequence[str] = ROCE
    ) -> None:
        speeds = {f"gpu{number:03}/eth0": RATE / 2 for number in slow}
        fabric = LeafSpine(4, 16, RATE, metrics=metrics, speeds=speeds)
        super().__init__(fabric, ("gpu",))
        for number in range(1, 17):
            self.fabric.send(util * RATE, f"gpu{number:03}/eth0", f"leaf1/down{number % 16 + 1}")

    def cnps(self, *hosts: int, per_s: float) -> None:
        """CNPs that some hosts handle; the receivers behind them see the marks."""
        for number in hosts:
            self.fabric.counted[f"gpu{number:03}/eth0", "rdma_cnp_handled"] = per_s
            receiver = f"gpu{number % 16 + 1:03}/eth0"
            self.fabric.counted[receiver, "rdma_cnp_sent"] = per_s
            self.fabric.counted[receiver, "rdma_ecn_marked"] = 50 * per_s


def test_cnps_that_every_host_has_are_background() -> None:
    """30,000 a second at every NIC are 107 per gigabit: as many as everywhere."""
    hosts = WatchedHosts()
    hosts.cnps(*range(1, 17), per_s=30_000)
    hosts.seconds(30)
    assert hosts.changes == []


def test_few_cnps_per_gigabit_are_background() -> None:
    hosts = WatchedHosts()
    hosts.cnps(1, 2, 3, 4, per_s=4 * 0.7 * RATE / GBIT)
    hosts.seconds(30)
    assert hosts.changes == []


def test_some_senders_with_twice_the_cnps_of_the_others_are_background() -> None:
    """5 % of packets marked on every path: what a NIC counts depends on its number of flows."""
    hosts = WatchedHosts()
    hosts.cnps(*range(1, 17), per_s=20_000)
    hosts.cnps(1, 2, 3, 4, per_s=39_000)
    hosts.seconds(30)
    assert hosts.changes == []


def test_four_senders_with_far_more_cnps_than_the_others_are_on_a_congested_path() -> None:
    hosts = WatchedHosts()
    hosts.cnps(*range(1, 17), per_s=1_000)
    hosts.seconds(12)
    assert hosts.changes == []
    hosts.cnps(1, 2, 3, 4, per_s=40_000)
    scene = hosts.seconds(15)
    (finding,) = scene.findings
    assert finding.cause == "congested_path"
    slowed = {scene.snapshot.fabric.ports[row].node for row in finding.rows}
    assert slowed == {"gpu001", "gpu002", "gpu003", "gpu004"}
    assert finding.victims == tuple(f"gpu{number:03}/eth0" for number in (2, 3, 4, 5))
    assert "is not observable from hosts" in finding.text
    assert finding.unseen


@pytest.mark.parametrize(("slow", "found"), [((), 1), ((2, 6, 10, 14), 0)])
def test_receivers_that_are_slower_than_their_senders_explain_marks(
    slow: tuple[int, ...], found: int
) -> None:
    """Bursts of 400G senders fill 200G receivers for milliseconds, and a quarter of each second."""
    hosts = WatchedHosts(util=0.13, slow=slow)
    hosts.cnps(*range(1, 17), per_s=200)
    hosts.seconds(12)
    hosts.cnps(1, 5, 9, 13, per_s=10_000)
    hosts.seconds(15)
    assert len(hosts.opened()) == found


def test_slow_nics_elsewhere_do_not_explain_senders_that_are_paused() -> None:
    hosts = WatchedHosts(util=0.3, slow=(14,))
    for number in (1, 2, 3, 4):
        hosts.fabric.counted[f"gpu{number:03}/eth0", PAUSED_US] = 700_000
    hosts.seconds(25)
    assert [each.split()[0] for each in hosts.opened()] == ["congested_path"]


def test_a_full_receiver_explains_the_cnps_of_its_senders() -> None:
    hosts = WatchedHosts()
    hosts.fabric.silence()
    for number in (1, 2, 3, 4):
        hosts.fabric.send(0.247 * RATE, f"gpu{number:03}/eth0", "leaf1/down5")
        hosts.fabric.counted[f"gpu{number:03}/eth0", "rdma_cnp_handled"] = 20_000
    hosts.fabric.counted["gpu005/eth0", "rdma_ecn_marked"] = 1_000_000
    hosts.seconds(30)
    assert hosts.opened() == ["incast gpu005/eth0"]


def without_credits(hosts: WatchedHosts, share: float, *numbers: int) -> None:
    """Hosts that have something to send and no credits for a share of the time: the counter is
    of the time that 8 bytes take (counters.md)."""
    for number in numbers:
        hosts.fabric.counted[f"gpu{number:03}/eth0", "ib_ext_tx_wait"] = share * RATE / 64


@pytest.mark.parametrize(
    ("background", "slow", "found"), [(0.0, (), 1), (0.06, (), 0), (0.0, (14,), 0)]
)
def test_one_sender_without_credits_has_a_slow_link_or_receiver_behind_it(
    background: float, slow: tuple[int, ...], found: int
) -> None:
    """It waits for a fifth of the time with traffic. Where the others wait for a third of that, or
    a receiver of half its rate may be behind it, that is no sign."""
    hosts = WatchedHosts(util=0.4, slow=slow, metrics=("ib_ext_tx_wait",))
    without_credits(hosts, background * 0.4, *range(1, 17))
    hosts.seconds(12)
    without_credits(hosts, 0.1, 3)
    scene = hosts.seconds(25)
    assert hosts.opened() == ["congested_path paths out of gpu003"] * found
    for finding in scene.findings:
        assert finding.text == (
            "1 of 16 senders (gpu003 r0) is without credits up to 20 % of the time with traffic,"
            " and no receiver explains it: a queue on a path out of gpu003; whether by hash, by too"
            " few links, by a slow link or by a slow receiver is not observable from hosts"
        )


@pytest.mark.parametrize(("waits", "found"), [((2, 3, 4), 1), ((3,), 0)])
def test_a_receiver_that_one_sender_fills_explains_few_that_wait(
    waits: tuple[int, ...], found: int
) -> None:
    """One NIC at line rate slows nobody. Of one or two senders it may be the receiver."""
    hosts = WatchedHosts(util=0.4, metrics=("ib_ext_tx_wait",))
    hosts.fabric.send(0.57 * RATE, "gpu008/eth0", "leaf1/down9")
    hosts.seconds(12)
    without_credits(hosts, 0.1, *waits)
    hosts.seconds(25)
    assert len(hosts.opened()) == found


@pytest.mark.parametrize("metrics", [("ib_ext_tx_wait",), (PAUSED_US,)])
def test_a_full_receiver_explains_all_that_wait_and_send_no_more_than_it_gets(
    metrics: tuple[str, ...],
) -> None:
    """The last host of an all-to-all gets from the others, and sends to them as much: its link is
    no bottleneck of an exchange."""
    hosts = WatchedHosts(util=0, metrics=metrics)
    for number in (1, 2, 3, 4):
        hosts.fabric.send(0.24 * RATE, f"gpu{number:03}/eth0", "leaf1/down5")
        hosts.fabric.send(0.24 * RATE, "gpu005/eth0", f"leaf1/down{number}")
        hosts.fabric.counted[f"gpu{number:03}/eth0", PAUSED_US] = 600_000
    without_credits(hosts, 0.6, 1, 2, 3, 4)
    hosts.seconds(25)
    assert hosts.changes == []


def test_a_ring_at_line_rate_explains_no_other_job() -> None:
    hosts = WatchedHosts(util=0.3, metrics=("ib_ext_tx_wait",))
    for number in range(9, 17):
        hosts.fabric.send(0.66 * RATE, f"gpu{number:03}/eth0", f"leaf1/down{number % 8 + 9}")
    hosts.seconds(12)
    without_credits(hosts, 0.3, 2, 3, 4)
    hosts.seconds(25)
    assert len(hosts.opened()) == 1


def test_slow_nics_of_a_large_job_explain_no_more_than_those_that_wait_send() -> None:
    hosts = WatchedHosts(util=0.4, slow=range(5, 17), metrics=("ib_ext_tx_wait",))
    hosts.seconds(12)
    without_credits(hosts, 0.55, 1, 2, 3)
    hosts.seconds(25)
    assert len(hosts.opened()) == 1


@pytest.mark.parametrize(("share", "found"), [(0.3, 0), (0.55, 1)])
def test_receivers_of_half_the_line_rate_explain_as_much_waiting_as_they_take_longer(
    share: float, found: int
) -> None:
    """Half of a ring: a sender of 40 % of line rate waits as long as it sends, and no longer."""
    hosts = WatchedHosts(util=0.4, slow=range(2, 17, 2), metrics=("ib_ext_tx_wait",))
    hosts.seconds(12)
    without_credits(hosts, share, *range(1, 17, 2))
    hosts.seconds(25)
    assert len(hosts.opened()) == found


def test_a_sender_whose_line_rate_is_unknown_does_not_hide_that_receivers_are_slower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described = LeafSpine._host

    def without_speed(fabric: LeafSpine, name: str, role: str) -> Host:
        host = described(fabric, name, role)
        return msgspec.structs.replace(host, speeds=()) if name == "gpu001" else host

    monkeypatch.setattr(LeafSpine, "_host", without_speed)
    hosts = WatchedHosts(util=0.4, slow=range(2, 17, 2))
    hosts.seconds(12)
    for number in range(1, 17, 2):
        hosts.fabric.counted[f"gpu{number:03}/eth0", PAUSED_US] = 300_000
    hosts.seconds(25)
    assert hosts.opened() == []


@pytest.mark.parametrize(("util", "share"), [(0.05, 0.02), (0.3, 0.04)])
def test_a_sender_that_hardly_waits_is_not_held_up(util: float, share: float) -> None:
    """Of a sender with little traffic, or with some, that waits for less than 5 % of all time."""
    hosts = WatchedHosts(util=util, metrics=("ib_ext_tx_wait",))
    hosts.seconds(12)
    without_credits(hosts, share, 3)
    hosts.seconds(25)
    assert hosts.changes == []


def test_a_sender_whose_receiver_is_not_watched_may_wait_for_it() -> None:
    """It writes a checkpoint to a server that is not in the hosts file."""
    hosts = WatchedHosts(util=0.4, metrics=("ib_ext_tx_wait",))
    hosts.seconds(12)
    hosts.fabric.received["gpu004/eth0"] = 0
    without_credits(hosts, 0.1, 3)
    hosts.seconds(25)
    assert hosts.changes == []


def test_a_sender_that_waits_less_for_a_while_has_one_finding() -> None:
    hosts = WatchedHosts(util=0.4, metrics=("ib_ext_tx_wait",))
    hosts.seconds(12)
    for second in range(60):
        without_credits(hosts, 0.15 if second // 15 % 2 == 0 else 0.067, 3)
        hosts.seconds(1)
    assert len(hosts.opened()) == 1


def test_senders_at_line_rate_are_not_slowed() -> None:
    """Half as fast as their receivers, they send all that they can, whatever their CNPs."""
    slow = (1, 3, 5, 7)
    hosts = WatchedHosts(util=0.475, slow=slow)
    hosts.cnps(*range(1, 17), per_s=1_000)
    hosts.seconds(12)
    hosts.cnps(*slow, per_s=40_000)
    hosts.seconds(20)
    assert hosts.changes == []


def test_marks_at_all_receivers_are_a_queue_where_a_quarter_of_the_packets_has_them() -> None:
    """4:1 oversubscribed: all senders reach half of their line rate, and no receiver is full."""
    hosts = WatchedHosts(util=0.5)
    hosts.cnps(*range(1, 17), per_s=20_000)
    hosts.seconds(30)
    assert hosts.changes == []
    hosts.cnps(*range(1, 17), per_s=100_000)
    scene = hosts.seconds(30)
    assert hosts.opened() == ["congested_path paths of rail r0"]
    assert scene.findings[0].lost == 0, "nobody is left to compare with"


def test_a_receiver_whose_link_flaps_explains_senders_without_credits() -> None:
    hosts = WatchedHosts(metrics=("ib_ext_tx_wait",))
    hosts.seconds(12)

    def flaps(second: int) -> None:
        hosts.fabric.down = {"gpu009/eth0"} if second % 4 < 2 else set()
        without_credits(hosts, 0.6, 1, 2, 3)

    hosts.seconds(24, flaps)
    assert {each.split()[0] for each in hosts.opened()} == {"link_down", "flapping_link"}


def test_a_nic_that_stays_down_explains_nothing() -> None:
    hosts = WatchedHosts()
    hosts.seconds(12)
    hosts.fabric.down = {"gpu016/eth0"}
    for port in ("gpu016/eth0", "leaf1/down16"):
        hosts.fabric.sent.pop(port, None)
        hosts.fabric.received.pop(port, None)
    for number in (1, 2, 3, 4):
        hosts.fabric.counted[f"gpu{number:03}/eth0", PAUSED_US] = 500_000
    hosts.seconds(30)
    assert {each.split()[0] for each in hosts.opened()} == {"link_down", "congested_path"}
