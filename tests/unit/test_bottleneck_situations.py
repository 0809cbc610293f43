"""Full links and full groups: hand-made rates, physically consistent, and what must be found."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from collectors.wire import Object
from fabmon.analysis.evidence.null_model import compare_with_hashing
from fabmon.analysis.fabric_structure import build_structure
from fabmon.analysis.finding import Finding
from fabmon.analysis.model.shared_links import shared_links
from fabmon.fabric.model import SWITCH, Host
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.topology.plan import Topology
from fabmon.fabric.wire.messages import Hello
from fabmon.session.config import load
from fabmon.session.session import Session
from tests.builders import LeafSpine, Watched, ecmp, hello, neighbour, port
from tests.score.play import play
from tests.world.plans import draw_plan

GBPS = 1e9
SECONDS = 20


class Leaf(Watched):
    """A leaf with uplinks of 400G and hosts that each have one flow.

    `flows` are the rates in Gb/s on each uplink; the k-th flow is that of the k-th host, whose
    line rate is `host_gbps`. `more` hosts send nothing.
    """

    def __init__(self, *flows: tuple[float, ...], host_gbps: float = 400, more: int = 0) -> None:
        placed = [(uplink, each) for uplink, link in enumerate(flows, start=1) for each in link]
        hosts = len(placed) + more
        speeds = {}
        for number in range(1, hosts + 1):
            for name in (f"gpu{number:03}/eth0", f"leaf1/down{number}"):
                speeds[name] = host_gbps * GBPS
        fabric = LeafSpine(uplinks=len(flows), hosts=hosts, rate_bps=400 * GBPS, speeds=speeds)
        super().__init__(fabric)
        for number, (uplink, gbps) in enumerate(placed, start=1):
            fabric.send(gbps * GBPS, f"gpu{number:03}/eth0", f"leaf1/up{uplink}")


class ReadLate(Leaf):
    """A leaf whose switch and hosts are read `late_s` later than its spines."""

    def __init__(self, *flows: tuple[float, ...], late_s: int, more: int = 0) -> None:
        super().__init__(*flows, more=more)
        self._fabric_step, self._late_s = self.fabric.step, late_s
        self.fabric.step = self._step  # type: ignore[method-assign]

    def _step(self) -> Tick:
        seq, hellos = self.fabric.seq, self.fabric.hellos()
        made = self._fabric_step()
        late = [node for node in hellos if not node.startswith("spine")]
        if seq < self._late_s:
            frames = tuple(each for each in made.frames if each[0] not in late)
            made = msgspec.structs.replace(made, frames=frames)
        if seq == 0:
            first = tuple(each for each in made.hellos if each[0] not in late)
            states = [
                (node, NodeState.STARTING if node in late else NodeState.UP) for node in hellos
            ]
        elif seq == self._late_s:
            first = tuple((node, hellos[node]) for node in late)
            states = [(node, NodeState.UP) for node in late]
        else:
            return made
        statuses = tuple(NodeStatus(node, state, made.time_ns) for node, state in states)
        return msgspec.structs.replace(made, hellos=first, statuses=statuses)


@pytest.mark.parametrize("late_s", [1, 4, 8, 15])
def test_a_leaf_is_not_judged_by_the_counters_of_spines_that_were_read_earlier(
    late_s: int,
) -> None:
    """Two elephants come down over two spines; for some seconds nobody knows who gets them."""
    leaf = ReadLate((), (), (), (), late_s=late_s, more=2)
    for number in (1, 2):
        leaf.fabric.send(390 * GBPS, f"spine{number}/swp1", f"leaf1/down{number}")
    leaf.seconds(40)
    assert leaf.opened() == []


def test_a_collision_into_a_leaf_that_is_read_late_is_found_by_its_receivers() -> None:
    leaf = ReadLate((), (), (), (), late_s=4, more=2)
    for number in (1, 2):
        leaf.fabric.send(195 * GBPS, "spine1/swp1", f"leaf1/down{number}")
    leaf.seconds(20)
    assert leaf.opened() == ["ecmp_collision spine1/swp1"]
    (finding,) = leaf.seconds(1).findings
    assert finding.victims == ("leaf1/down1", "leaf1/down2")


def test_a_full_link_that_nobody_is_known_to_share_is_no_finding() -> None:
    """A single flow at its sender's line rate looks like this where no port below is known."""
    watched = Watched(LeafSpine(uplinks=3, hosts=0, rate_bps=400 * GBPS))
    watched.fabric.send(388 * GBPS, "leaf1/up1")
    assert watched.seconds(SECONDS).findings == ()


def test_many_flows_on_few_links_lose_an_unknown_share_where_some_senders_are_not_known() -> None:
    """Of fifteen senders on one of eight uplinks, seven are known."""
    fabric = LeafSpine(uplinks=8, hosts=7, rate_bps=400 * GBPS)
    for number in range(1, 8):
        fabric.send(26 * GBPS, f"gpu{number:03}/eth0", "leaf1/up2")
    fabric.send(8 * 26 * GBPS, "leaf1/up2")
    watched = Watched(fabric)
    (finding,) = watched.seconds(SECONDS).findings
    assert (finding.cause, finding.severity, finding.lost) == ("polarization", "warning", 0)
    assert "uneven by 88 %, and what they lose is not known" in finding.text
    assert "lost bandwidth" not in [each.name for each in finding.evidence]


def found(leaf: Leaf) -> tuple[Finding, ...]:
    """The findings that are open after some seconds."""
    return leaf.seconds(SECONDS).findings


def test_two_elephants_on_two_uplinks_are_no_collision() -> None:
    """Each has a link of its own, and sends all it can."""
    assert found(Leaf((390,), (390,), (), (), more=2)) == ()


def test_an_elephant_beside_mice_is_no_collision() -> None:
    assert found(Leaf((390,), (20,), (30,), (25,), (15,), (), (), ())) == ()


def test_an_elephant_with_a_mouse_on_its_link_is_no_collision() -> None:
    """The mouse has all it asks for; the elephant loses 3 %."""
    assert found(Leaf((375, 12), (20,), (30,), (25,))) == ()


def test_a_leaf_with_as_many_uplinks_as_hosts_may_be_full() -> None:
    assert found(Leaf(*[(388,)] * 8)) == ()


def test_a_leaf_that_is_full_after_a_collision_holds_nobody() -> None:
    """The evidence is still there when each host has room for all that it sends: it was said that
    no port loses 100 %."""
    played = play(replace(draw_plan(881110018, "fault"), seconds=105))
    assert {each.cause for each in played.reported} == {"ecmp_collision"}


def test_two_elephants_on_one_of_eight_uplinks_get_half_of_what_they_could() -> None:
    (finding,) = found(Leaf((), (), (195, 195), (), (), (), (), ()))
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up3")
    assert finding.lost == pytest.approx(0.5, abs=0.02)
    assert finding.victims == ("leaf1/down1", "leaf1/down2")


def test_of_two_senders_on_a_full_link_one_that_has_far_less_is_slowed_elsewhere() -> None:
    """It would get more of this link: then the link slows one sender only."""
    assert found(Leaf((290, 100), (), (), (), more=2)) == ()


def test_uneven_links_and_lost_bandwidth_are_two_numbers() -> None:
    """Eight senders of 100G, hashed 5-1-1-1 onto four uplinks of 400G: five of them get 80G."""
    (finding,) = found(Leaf((78,) * 5, (98,), (98,), (98,), host_gbps=100))
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up1")
    assert finding.lost == pytest.approx(0.20, abs=0.03)
    numbers = {each.name: each.value for each in finding.evidence}
    assert numbers["imbalance"] == pytest.approx(56, abs=2)
    assert numbers["lost bandwidth"] == pytest.approx(20, abs=3)


def test_lost_bandwidth_is_a_mean_of_seconds_in_which_other_links_have_more_or_less_room() -> None:
    """Two hosts share the first link in half of the seconds, and lose half. In the others four do,
    and four more leave next to no room on the second."""
    watched = Leaf((0, 0, 0, 0), (0, 0, 0, 0))

    def traffic(second: int) -> None:
        watched.fabric.silence()
        few, many = (194, 194, 0, 0, 0, 0, 0, 0), (97, 97, 97, 97, 78, 78, 78, 78)
        for number, gbps in enumerate(many if second % 2 else few, start=1):
            link = 1 if number <= 4 else 2
            watched.fabric.send(gbps * GBPS, f"gpu{number:03}/eth0", f"leaf1/up{link}")

    (finding,) = watched.seconds(2 * SECONDS, traffic).findings
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up1")
    assert finding.lost == pytest.approx((0.5 + 0.1) / 2, abs=0.06)


def test_ports_that_have_little_to_send_leave_their_share_to_those_that_are_slowed() -> None:
    """Five ports share 1.6 Tb/s, 320 each; two could send 400, as the others leave enough."""
    (finding,) = found(Leaf((195, 195), (40,), (40,), (40,)))
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up1")
    assert finding.lost == pytest.approx(0.5, abs=0.02)


def test_a_leaf_with_half_the_uplinks_that_its_hosts_need_is_oversubscribed() -> None:
    (finding,) = found(Leaf(*[(194, 195)] * 4))
    assert (finding.cause, finding.subject) == ("oversubscription", "leaf1/uplinks")
    assert finding.lost == pytest.approx(0.51, abs=0.02)


def test_what_a_switch_drops_is_not_achieved() -> None:
    """Senders that do not slow down want what they send: 640 Gb/s go in, 400 come out."""
    leaf = Leaf((), (), (), (), (), (), (), (), more=2)
    for host in ("gpu001", "gpu002"):
        leaf.fabric.send(320 * GBPS, f"{host}/eth0")
    leaf.fabric.send(400 * GBPS, "leaf1/up3")
    (finding,) = found(leaf)
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up3")
    assert finding.lost == pytest.approx(1 - 400 / 640, abs=0.02)


def test_what_a_switch_drops_before_a_full_host_is_no_loss_of_an_uplink() -> None:
    """One host fills an uplink alone; two others send 390 Gb/s each to one under the same leaf."""
    leaf = Leaf((), (), (390,), (), more=3)
    for host in ("gpu002", "gpu003"):
        leaf.fabric.send(390 * GBPS, f"{host}/eth0")
    leaf.fabric.send(400 * GBPS, "leaf1/down4")
    assert "ecmp_collision" not in {each.cause for each in found(leaf)}


def test_two_slower_ports_in_a_full_group_are_no_oversubscription() -> None:
    """Six of eight hosts send all they can; what slows the others is elsewhere."""
    assert found(Leaf(*[(390,)] * 6, (380,), (200, 180))) == ()


def test_traffic_between_ports_of_a_leaf_is_not_that_of_its_uplinks() -> None:
    """Half of a leaf's hosts share four uplinks of eight; the other half is a ring below it."""
    for local_gbps in (0, 380):
        metrics = ("rdma_cnp_handled",)
        watched = Watched(LeafSpine(uplinks=4, hosts=20, rate_bps=400 * GBPS, metrics=metrics))
        for number in range(1, 9):
            host = f"gpu{number:03}/eth0"
            watched.fabric.send(195 * GBPS, host, f"leaf1/up{1 + number % 4}")
            watched.fabric.counted[host, "rdma_cnp_handled"] = 20_000
        for number in range(9, 21):
            receiver = 9 + (number - 8) % 12
            watched.fabric.send(local_gbps * GBPS, f"gpu{number:03}/eth0", f"leaf1/down{receiver}")
        (finding,) = watched.seconds(SECONDS).findings
        assert finding.cause == "oversubscription"
        assert finding.lost == pytest.approx(0.51, abs=0.02)


def test_a_full_group_whose_hosts_count_no_cnps_slows_nobody() -> None:
    """They send what their jobs have to send, and the links just carry it."""
    metrics = ("rdma_cnp_handled",)
    watched = Watched(LeafSpine(uplinks=4, hosts=8, rate_bps=400 * GBPS, metrics=metrics))
    for number in range(1, 9):
        watched.fabric.send(190 * GBPS, f"gpu{number:03}/eth0", f"leaf1/up{1 + number % 4}")
    assert watched.seconds(SECONDS).findings == ()


class NotAdvertised(LeafSpine):
    """A leaf without equal-cost routes: nothing says how it routes."""

    def hellos(self) -> dict[str, Hello]:
        every = super().hellos()
        (block,) = every["leaf1"].blocks
        objects = tuple(each for each in block.objects if each.kind != "ecmp")
        blocks = (msgspec.structs.replace(block, objects=objects),)
        return every | {"leaf1": msgspec.structs.replace(every["leaf1"], blocks=blocks)}


def routed(mode: str) -> Finding:
    """The finding about two elephants on one of four uplinks, where routing has this mode."""
    fabric = NotAdvertised(uplinks=4, hosts=2, rate_bps=400 * GBPS)
    for number in (1, 2):
        fabric.send(195 * GBPS, f"gpu{number:03}/eth0", "leaf1/up3")
    watched = Watched(fabric)
    tiers = {"leaf1": 1, **dict.fromkeys(fabric.spines, 2)}
    topology = Topology(tiers=tiers, routing={"*": mode} if mode else {})
    session = Session(load(Path("/dev/null")), topology=topology)
    watched.pipeline = session.pipeline(fabric.hosts, 1.0)
    (finding,) = watched.seconds(SECONDS).findings
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up3")
    return finding


@pytest.mark.parametrize(
    ("mode", "is_compared"), [("hashed", True), ("", True), ("static", False), ("adaptive", False)]
)
def test_a_full_link_is_compared_with_random_hashing_where_switches_may_hash(
    mode: str, is_compared: bool
) -> None:
    finding = routed(mode)
    of_hashing = {"max/mean", "max/mean of random hashing, p95", "effective flows"}
    names = {each.name for each in finding.evidence}
    assert names & of_hashing == (of_hashing if is_compared else set())
    assert (compare_with_hashing(finding) is not None) == is_compared
    assert ("hash" in finding.text) == (not is_compared), "it says that no hash is the reason"


@pytest.mark.parametrize(
    ("mode", "said", "advice"),
    [
        ("hashed", "hashed", "Give the hash more flows"),
        ("", "not known", "If the switches hash, which is not known: give the hash more flows"),
        ("static", "static", "Forwarding tables send this traffic over one link"),
        ("adaptive", "adaptive", "Adaptive routing and packet spraying balance by packet"),
    ],
)
def test_a_finding_at_a_full_link_has_the_routing_mode(mode: str, said: str, advice: str) -> None:
    finding = routed(mode)
    assert {each.name: each.value for each in finding.evidence}["routing"] == said
    assert finding.advice.startswith(advice)


@pytest.mark.parametrize("receives_gbps", [100, 196])
def test_senders_to_slower_hosts_are_not_slowed_by_a_link_that_just_carries_them(
    receives_gbps: float,
) -> None:
    """Two hosts of 400G fill an uplink: at the rate of those of 200G, while some of these are
    full."""
    speeds = dict.fromkeys(("gpu003/eth0", "leaf1/down3"), 200 * GBPS)
    fabric = LeafSpine(uplinks=4, hosts=3, rate_bps=400 * GBPS, speeds=speeds)
    for number in (1, 2):
        fabric.send(196 * GBPS, f"gpu{number:03}/eth0", "leaf1/up1")
    fabric.send(receives_gbps * GBPS, "leaf1/down3")
    watched = Watched(fabric)
    watched.seconds(SECONDS)
    is_slowed = "ecmp_collision leaf1/up1" in watched.opened()
    assert is_slowed == (receives_gbps < 190)


@pytest.mark.parametrize("waits", [0.0, 0.5])
def test_a_full_group_slows_hosts_that_are_as_fast_as_a_slower_one_by_chance(waits: float) -> None:
    """Seven hosts of 400G send 200 Gb/s beside one of 200G at its line rate: those that are paused
    for half of the time do not wait for slower NICs."""
    paused = "pfc_rx_pause_us_prio3"
    speeds = dict.fromkeys(("gpu001/eth0", "leaf1/down1"), 200 * GBPS)
    fabric = LeafSpine(4, hosts=8, rate_bps=400 * GBPS, speeds=speeds, metrics=(paused,))
    for number in range(1, 9):
        gbps = 190 if number == 1 else 200
        fabric.send(gbps * GBPS, f"gpu{number:03}/eth0", f"leaf1/up{1 + number % 4}")
        fabric.counted[f"gpu{number:03}/eth0", paused] = waits * 1e6 if number > 1 else 0
    watched = Watched(fabric)
    watched.seconds(SECONDS)
    assert ("oversubscription leaf1/uplinks" in watched.opened()) == (waits > 0)


@pytest.mark.parametrize("slower_gbps", [200, 400])
def test_a_full_group_slows_nobody_who_only_waits_for_a_slower_host(slower_gbps: float) -> None:
    """Hosts that count nothing send at the line rate of the slowest NIC, or at half of it."""
    speeds = dict.fromkeys(("gpu001/eth0", "leaf1/down1"), slower_gbps * GBPS)
    fabric = LeafSpine(4, hosts=8, rate_bps=400 * GBPS, speeds=speeds)
    for number in range(1, 9):
        fabric.send(195 * GBPS, f"gpu{number:03}/eth0", f"leaf1/up{1 + number % 4}")
    watched = Watched(fabric)
    watched.seconds(SECONDS)
    assert ("oversubscription leaf1/uplinks" in watched.opened()) == (slower_gbps == 400)


@pytest.mark.parametrize(
    ("flows", "victims"),
    [
        (((195, 200), (60,), (70,)), ("leaf1/down1", "leaf1/down2")),
        (((130, 133, 131), (390,), (200,)), ("leaf1/down1", "leaf1/down2", "leaf1/down3")),
    ],
    ids=["two halves", "three thirds"],
)
def test_those_that_are_on_no_other_link_share_the_full_one(
    flows: tuple[tuple[float, ...], ...], victims: tuple[str, ...]
) -> None:
    (finding,) = found(Leaf(*flows, ()))
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up1")
    assert finding.victims == victims


def test_of_senders_in_step_nobody_is_named_where_none_shows_a_queue() -> None:
    """Two of five share a link; each of the others sends as fast as these over one of its own."""
    for finding in found(Leaf((195, 195), (195,), (195,), (195,), (), ())):
        assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up1")
        assert finding.victims == ()
        assert "at least 2 of " in finding.text


def test_of_senders_in_step_those_with_the_most_cnps_are_named() -> None:
    cnps = {1: 190.0, 2: 28.0, 3: 210.0, 4: 25.0, 5: 0.0}
    fabric = LeafSpine(6, hosts=5, rate_bps=400 * GBPS, metrics=("rdma_cnp_handled",))
    for number, per_gbit in cnps.items():
        uplink = 1 if per_gbit > 100 else 1 + number
        fabric.send(195 * GBPS, f"gpu{number:03}/eth0", f"leaf1/up{uplink}")
        fabric.counted[f"gpu{number:03}/eth0", "rdma_cnp_handled"] = per_gbit * 195
    (finding,) = Watched(fabric).seconds(SECONDS).findings
    assert (finding.cause, finding.subject) == ("ecmp_collision", "leaf1/up1")
    assert finding.victims == ("leaf1/down1", "leaf1/down3")


def test_senders_that_take_turns_share_nothing() -> None:
    watched = Leaf((0, 0), (), (), ())

    def traffic(second: int) -> None:
        watched.fabric.silence()
        watched.fabric.send(390 * GBPS, f"gpu{1 + second % 2:03}/eth0", "leaf1/up1")

    assert watched.seconds(2 * SECONDS, traffic).findings == ()


class TwoLeaves(LeafSpine):
    """Two leaves with hosts of 400G and an uplink of 400G to each of four spines."""

    def __init__(self, hosts: int) -> None:
        super().__init__(uplinks=4, hosts=2 * hosts, rate_bps=400 * GBPS)
        self._peer.clear()
        self._ports: dict[str, list[str]] = {}
        for number in range(1, 5):
            for leaf in (1, 2):
                self._link(f"leaf{leaf}/up{number}", f"spine{number}/swp{leaf}")
        for number, name in enumerate(self.servers):
            leaf, place = divmod(number, hosts)
            self._link(f"leaf{leaf + 1}/down{place + 1}", f"{name}/eth0")

    def _link(self, one: str, other: str) -> None:
        self._cable(one, other)
        for near in (one, other):
            node, _, name = near.partition("/")
            self._ports.setdefault(node, []).append(name)

    @property
    def hosts(self) -> list[Host]:
        return [*super().hosts, self._host("leaf2", SWITCH)]

    def hellos(self) -> dict[str, Hello]:
        said = {}
        for node, names in self._ports.items():
            objects = [port(name, f"{node}-{name}") for name in names]
            for name in names:
                objects.append(neighbour(name, self.cabled_to(f"{node}/{name}")))
            if node.startswith("leaf"):
                objects.append(ecmp(*(f"up{number}" for number in range(1, 5))))
            said[node] = hello(*objects)
        return said

    def cabled_to(self, name: str) -> str:
        """The MAC address of the port at the other end of a cable."""
        return self._peer[name].replace("/", "-")

    def transfer(self, gbps: float, sender: int, spine: int, receiver: int) -> None:
        """A flow from a host of leaf1 to one of leaf2, over a spine."""
        path = (f"gpu{sender:03}/eth0", f"leaf1/up{spine}", f"spine{spine}/swp2")
        hosts = len(self.servers) // 2
        self.send(gbps * GBPS, *path, f"leaf2/down{receiver - hosts}")


class HalfKnown(TwoLeaves):
    """leaf1 has routes over four uplinks, and over the three whose far ends are known."""

    def hellos(self) -> dict[str, Hello]:
        said = super().hellos()
        del said["spine4"]
        names = self._ports["leaf1"]
        objects = [port(name, f"leaf1-{name}") for name in names]
        for name in names:
            if name != "up4":
                objects.append(neighbour(name, self._peer[f"leaf1/{name}"].replace("/", "-")))
        every, known = ("up1", "up2", "up3", "up4"), ("up1", "up2", "up3")
        return {**said, "leaf1": hello(*objects, ecmp(*every), ecmp(*known))}


def test_groups_that_differ_by_a_link_without_a_far_end_have_the_same_links_into_their_leaf() -> (
    None
):
    """Twice the same candidate, each would begin the evidence of the other anew."""
    fabric = Watched(HalfKnown(hosts=2)).seconds(1).snapshot.fabric
    links = [each for each in shared_links(build_structure(fabric)) if each.node == "leaf1"]
    assert sorted(len(each.rows) for each in links if not each.is_inward) == [3, 4]
    assert [len(each.rows) for each in links if each.is_inward] == [3]


def test_of_full_links_in_a_row_the_first_one_is_reported() -> None:
    """Two flows share an uplink of leaf1; the spine's link to leaf2 carries the same."""
    fabric = TwoLeaves(hosts=4)
    fabric.transfer(194, 1, 1, 5)
    fabric.transfer(194, 2, 1, 6)
    watched = Watched(fabric)
    watched.seconds(SECONDS)
    assert watched.opened() == ["ecmp_collision leaf1/up1"]


@pytest.mark.parametrize("late", ["leaf1", "spine1"])
def test_of_full_links_in_a_row_the_first_one_is_reported_where_ticks_are_missed(
    late: str,
) -> None:
    """Bursts of 3 s of 5. A node that misses a tick shows the mean of two: the two links seem to
    differ by a third of what they carry."""
    fabric = TwoLeaves(hosts=4)
    step = fabric.step

    def step_with_misses() -> Tick:
        seq, made = fabric.seq, step()
        frames = tuple(each for each in made.frames if each[0] != late or seq % 10 != 2)
        return msgspec.structs.replace(made, frames=frames)

    def in_bursts(second: int) -> None:
        fabric.silence()
        if second % 5 < 3:
            fabric.transfer(194, 1, 1, 5)
            fabric.transfer(194, 2, 1, 6)

    fabric.step = step_with_misses  # type: ignore[method-assign]
    watched = Watched(fabric)
    watched.seconds(2 * SECONDS, in_bursts)
    assert watched.opened() == ["ecmp_collision leaf1/up1"]


@pytest.mark.parametrize("order", list(itertools.permutations(("leaf1", "spine1", "leaf2"))))
def test_of_full_links_in_a_row_the_first_one_is_reported_whichever_node_is_read_first(
    order: tuple[str, ...],
) -> None:
    """The flows were there before fabmon, which reads one node after the other; hosts come between
    the switches."""
    fabric = TwoLeaves(hosts=4)
    fabric.transfer(194, 1, 1, 5)
    fabric.transfer(194, 2, 1, 6)
    begins = {node: 1 + 2 * number for number, node in enumerate(order)}
    step = fabric.step

    def step_of_those_that_answer() -> Tick:
        seq, made = fabric.seq, step()
        frames = tuple(each for each in made.frames if begins.get(each[0], 2) <= seq)
        return msgspec.structs.replace(made, frames=frames)

    fabric.step = step_of_those_that_answer  # type: ignore[method-assign]
    watched = Watched(fabric)
    watched.seconds(2 * SECONDS)
    assert watched.opened() == ["ecmp_collision leaf1/up1"]


def test_rates_that_are_not_known_yet_are_filled_beside_nvlinks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """NVLinks are kept for a shorter time, which makes the rates of ports beside each other a view
    of what is kept: it was written to."""
    fabric = TwoLeaves(hosts=4)
    fabric.transfer(194, 1, 1, 5)
    fabric.transfer(194, 2, 1, 6)
    step, hellos = fabric.step, fabric.hellos

    def hellos_with_gpus() -> dict[str, Hello]:
        said = hellos()
        nvlink = Object("gpu0/0", "nvlink", "gpu0/0", {}, ("nvlink_tx_bytes", "nvlink_rx_bytes"))
        for name in fabric.servers:
            cabled = neighbour("eth0", fabric.cabled_to(f"{name}/eth0"))
            said[name] = hello(port("eth0", f"{name}-eth0"), cabled, nvlink)
        return said

    def step_with_a_late_leaf() -> Tick:
        seq, made = fabric.seq, step()
        frames = tuple(each for each in made.frames if each[0] != "leaf1" or seq >= 7)
        return msgspec.structs.replace(made, frames=frames)

    fabric.hellos = hellos_with_gpus  # type: ignore[method-assign]
    fabric.step = step_with_a_late_leaf  # type: ignore[method-assign]
    watched = Watched(fabric)
    watched.seconds(2 * SECONDS)
    assert watched.opened() == ["ecmp_collision leaf1/up1"]
    assert caplog.messages == []


def test_a_link_that_a_full_one_fills_for_a_second_at_a_time_is_no_second_collision() -> None:
    """A tenth of what the uplink carries goes to a leaf that is not watched, but for some seconds:
    its spine's link to leaf2 has no other traffic."""
    fabric = TwoLeaves(hosts=4)

    def some_seconds(second: int) -> None:
        fabric.silence()
        for sender in (1, 2):
            fabric.send(194 * GBPS, f"gpu{sender:03}/eth0", "leaf1/up1")
            arrives = 194 if second % 5 == 0 else 174
            fabric.send(arrives * GBPS, "spine1/swp2", f"leaf2/down{sender}")

    watched = Watched(fabric)
    watched.seconds(2 * SECONDS, some_seconds)
    assert watched.opened() == ["ecmp_collision leaf1/up1"]


def test_marks_behind_a_polarized_leaf_are_not_of_links_that_have_room() -> None:
    """The spine behind a full uplink sends on at 35 to 80 %; its receivers get what was marked
    before it. Jobs begin and end, so the full link is not flagged from its first second on."""
    played = play(replace(draw_plan(861110059, "fault"), seconds=60))
    assert {each.cause for each in played.reported} == {"polarization"}


def test_of_full_links_in_a_row_the_one_that_carries_more_is_reported() -> None:
    """The second link carries a flow of a third leaf, which is not watched, as well."""
    fabric = TwoLeaves(hosts=4)
    fabric.transfer(130, 1, 1, 5)
    fabric.transfer(130, 2, 1, 6)
    fabric.send(130 * GBPS, "spine1/swp2", "leaf2/down3")
    watched = Watched(fabric)
    watched.seconds(SECONDS)
    assert watched.opened() == ["ecmp_collision spine1/swp2"]


def test_which_of_equally_full_links_is_shared_is_said_to_be_unknown() -> None:
    """Two hosts share the first uplink, and one each fills the second and the third."""
    (finding,) = found(Leaf((194, 194), (388,), (388,), ()))
    others = {"leaf1 up1", "leaf1 up2", "leaf1 up3"} - {finding.subject.replace("/", " ")}
    assert f"whether it is that link or {', '.join(sorted(others))}" in finding.unseen
    (finding,) = found(Leaf((194, 194), (370,), (300,), ()))
    assert "whether" not in finding.unseen
