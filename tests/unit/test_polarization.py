"""Polarization by the queue pairs of few senders: how many flows they have, and their UDP ports."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fabmon.analysis.finding import CRITICAL, WARNING, Finding
from fabmon.fabric.flows.queue_pairs import roce_source_port
from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import Hello
from tests.builders import GBPS, LeafSpine, Watched, hello, neighbour, port
from tests.connections import Wires

SENDERS, SECONDS = 4, 20


class FewSenders(LeafSpine):
    """Hosts of leaf1 that all send over up1, each to a host behind spine1; links of 400G.

    A sender has so many queue pairs to its receiver, of which the k-th has the numbers `numbers[k]`
    (local and remote). Together they send `gbps`.
    """

    def __init__(
        self, numbers: list[tuple[int, int]], senders: int = SENDERS, gbps: float = 388
    ) -> None:
        super().__init__(uplinks=4, hosts=senders, rate_bps=400 * GBPS)
        self._wires = Wires()
        self._receivers = [f"dst{number}" for number in range(1, senders + 1)]
        for number, (src, dst) in enumerate(zip(self.servers, self._receivers, strict=True), 1):
            self._cable(f"spine1/down{number}", f"{dst}/eth0")
            self.send(gbps / senders * GBPS, f"{src}/eth0", "leaf1/up1", f"spine1/down{number}")
            for local, remote in numbers:
                self._wires.connect(f"{src}/eth0", f"{dst}/eth0", local, remote, job=f"j{number}")

    @property
    def hosts(self) -> list[Host]:
        return [*super().hosts, *(self._host(name, "host") for name in self._receivers)]

    def hellos(self) -> dict[str, Hello]:
        said = super().hellos()
        spine = [port("swp1", "spine1-swp1"), neighbour("swp1", "leaf1-up1")]
        for number, dst in enumerate(self._receivers, 1):
            spine += [port(f"down{number}", f"spine1-down{number}")]
            spine += [neighbour(f"down{number}", f"{dst}-eth0")]
        said["spine1"] = hello(*spine)
        for number, name in enumerate((*self.servers, *self._receivers)):
            far = f"leaf1-down{number + 1}"
            if name in self._receivers:
                far = f"spine1-down{number - len(self.servers) + 1}"
            nic = port("eth0", f"{name}-eth0", driver="mlx5_core")
            said[name] = hello(nic, neighbour("eth0", far), self._wires.report(f"{name}/eth0"))
        return said


def found(numbers: list[tuple[int, int]], senders: int = SENDERS) -> Finding:
    (finding,) = Watched(FewSenders(numbers, senders)).seconds(SECONDS).findings
    return finding


MANY = [(64 + 13 * each, 5064 + 7 * each) for each in range(8)]
"""Eight queue pairs, each with another UDP source port."""

ONE_PORT = [(1 << each, 1 << 19 - each) for each in range(1, 9)]
"""Eight queue pairs with the same UDP source port: it depends on the product of the numbers."""


def test_the_numbers_of_queue_pairs_have_these_ports() -> None:
    for numbers, ports in ((MANY, 8), (ONE_PORT, 1)):
        assert len({int(roce_source_port(*each)) for each in numbers}) == ports  # type: ignore[arg-type]


def test_one_flow_of_each_of_four_senders_on_one_link_may_be_chance() -> None:
    assert found([(64, 5064)]).cause == "ecmp_collision"
    assert found([]).cause == "ecmp_collision", "queue pairs are not known"


@pytest.mark.parametrize("numbers", [[], MANY], ids=["not known", "eight each"])
def test_that_many_senders_use_one_link_is_sure_without_their_queue_pairs(
    numbers: list[tuple[int, int]],
) -> None:
    finding = found(numbers, senders=10)
    flows = 40 if numbers else 10
    assert finding.text.startswith(f"{flows} or more flows of leaf1 use 1 of 4 uplinks (up1)")
    assert finding.severity == CRITICAL


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (MANY, "The 32 queue pairs have 8 UDP source ports"),
        (ONE_PORT, "All 32 queue pairs have one"),
    ],
)
def test_many_queue_pairs_of_four_senders_on_one_link_are_polarized(
    numbers: list[tuple[int, int]], said: str
) -> None:
    finding = found(numbers)
    assert (finding.cause, finding.subject) == ("polarization", "leaf1/uplinks")
    assert finding.text.startswith("up to 32 queue pairs of leaf1 use 1 of 4 uplinks (up1)")
    assert "(chance if 16 of them send: " in finding.text
    assert (finding.severity, finding.confidence) == (WARNING, 0.9), "some may be idle"
    assert finding.advice.startswith(said)
    assert finding.text.endswith("one UDP source port") == (numbers is ONE_PORT)


def opened(*flows: tuple[float, ...], within_leaf: int = 0) -> list[Finding]:
    """The findings of 20 s with flows of so many Gb/s on each uplink of 400G, TCP, one a host; and
    of hosts that send 12 Gb/s each to another host of the leaf."""
    placed = [(uplink, gbps) for uplink, link in enumerate(flows, 1) for gbps in link]
    hosts = len(placed) + within_leaf
    fabric = LeafSpine(uplinks=len(flows), hosts=hosts, rate_bps=400 * GBPS)
    for number, (uplink, gbps) in enumerate(placed, 1):
        fabric.send(gbps * GBPS, f"gpu{number:03}/eth0", f"leaf1/up{uplink}")
    for number in range(len(placed) + 1, hosts + 1):
        fabric.send(12 * GBPS, f"gpu{number:03}/eth0", f"leaf1/down{number}")
    watched = Watched(fabric)
    watched.seconds(SECONDS)
    return [each for _, _, each in watched.changes]


def test_a_link_without_room_is_enough_where_one_flow_a_sender_excludes_chance() -> None:
    """A link of TCP that is full for most of each second counts as 85 % full."""
    (finding,) = opened((43,) * 8, (43,) * 6, *[()] * 10)
    assert (finding.cause, finding.subject) == ("polarization", "leaf1/uplinks")
    assert finding.text.startswith("14 or more flows of leaf1 use 2 of 12 uplinks (up1, up2)")
    assert "what they lose is not known" in finding.text
    assert finding.severity == WARNING


def test_senders_of_a_little_over_other_links_are_no_flows_on_the_full_one() -> None:
    """NICs that wait, as for pause, send a little each: two flows hold the link, not ten."""
    causes = {each.cause for each in opened((200, 190), *[(8,)] * 8, *[()] * 7)}
    assert causes == {"ecmp_collision"}


def test_the_links_that_are_used_are_named_in_natural_order() -> None:
    (finding,) = opened((), (43,) * 6, *[()] * 7, (43,) * 8, (), ())
    assert " use 2 of 12 uplinks (up2, up10)" in finding.text


@pytest.mark.parametrize(
    "flows",
    [
        ((43,) * 4, (43,) * 4, (), ()),
        ((30,) * 8, (30,) * 6, *[()] * 10),
        tuple((43, 43) for _ in range(7)),
        ((43,) * 8, (43,) * 8, (), ()),
    ],
    ids=["may be chance", "has room", "even", "two of four in service"],
)
def test_a_link_below_its_line_rate_is_none(flows: tuple[tuple[float, ...], ...]) -> None:
    assert not opened(*flows)


def test_evenly_loaded_links_are_not_all_that_are_in_service_where_others_carry_a_little() -> None:
    (finding,) = opened((43,) * 8, (43,) * 8, (1,), ())
    assert (finding.cause, finding.subject) == ("polarization", "leaf1/uplinks")


def test_queue_pairs_are_not_enough_for_a_link_below_its_line_rate() -> None:
    """Only some of them may carry traffic; six senders may use one of four links by chance."""
    watched = Watched(FewSenders(MANY, senders=6, gbps=344))
    watched.seconds(SECONDS)
    assert watched.changes == []


def test_uplinks_that_carry_nothing_may_be_out_of_service() -> None:
    (finding,) = opened((43,) * 8, *[()] * 3)
    assert finding.advice.endswith(
        "queue pair. Or the unused uplinks are drained, or have no route."
    )
    (finding,) = opened((43,) * 8, (1,), (), ())
    assert finding.advice.endswith("queue pair.")


def test_a_sender_that_gets_little_of_a_full_link_is_a_flow_on_it_too() -> None:
    """Flows of TCP share a link unequally: one of eight has 4 % of it, and nothing else sends."""
    finding, *_ = opened((*[54] * 7, 15), (), (), ())
    assert finding.text.startswith("8 or more flows of leaf1 use 1 of 4 uplinks (up1)")


def test_hosts_that_send_within_their_leaf_have_no_flow_in_the_group() -> None:
    assert not opened((345,), (345,), *[()] * 10, within_leaf=8)


@pytest.mark.parametrize("dropped_gbps", [0.0, 32.0])
def test_what_the_switch_drops_was_sent_over_the_group_too(dropped_gbps: float) -> None:
    """Eight TCP flows on one of four links; the smallest one sends less than is dropped."""
    rates = (*(52.0 + 4.0 * bool(dropped_gbps),) * 7, 24.0 + 4.0 * bool(dropped_gbps))
    leaf = Watched(LeafSpine(uplinks=4, hosts=8, rate_bps=400 * GBPS))
    for number, gbps in enumerate(rates, start=1):
        leaf.fabric.send(gbps * GBPS, f"gpu{number:03}/eth0")
    leaf.fabric.send((sum(rates) - dropped_gbps) * GBPS, "leaf1/up1")
    (finding,) = leaf.seconds(SECONDS).findings
    assert finding.cause == "polarization"
    assert "8 or more flows of leaf1 use 1 of 4 uplinks" in finding.text


def opened_by_eight(traffic: Callable[[LeafSpine, int], None]) -> list[str]:
    """What opens in 20 s in which eight hosts send 392 Gb/s over up1, one of four, while `traffic`
    sets what a second has."""
    watched = Watched(LeafSpine(uplinks=4, hosts=8, rate_bps=400 * GBPS))

    def of_second(second: int) -> None:
        watched.fabric.silence()
        traffic(watched.fabric, second)

    watched.seconds(SECONDS, of_second)
    return watched.opened()


def test_a_flow_that_pauses_in_the_second_in_which_the_link_is_full_is_one_of_them() -> None:
    """A flow of TCP that lost its last packets sends nothing until its timer ends."""

    def all_but_one(fabric: LeafSpine, second: int) -> None:
        for number, server in enumerate(fabric.servers):
            if number != second % len(fabric.servers):
                fabric.send(56 * GBPS, f"{server}/eth0", "leaf1/up1")

    assert opened_by_eight(all_but_one) == ["polarization leaf1/uplinks"]


def test_four_of_eight_that_go_on_alone_over_their_link_are_a_collision() -> None:
    """The others, each on a link of its own or one of two, have sent what they had before."""

    def step(fabric: LeafSpine, second: int) -> None:
        for number, server in enumerate(fabric.servers):
            if number < 4:
                fabric.send(98 * GBPS, f"{server}/eth0", "leaf1/up1")
            elif second % 10 < 2:
                fabric.send(200 * GBPS, f"{server}/eth0", f"leaf1/up{2 + number % 3}")

    assert opened_by_eight(step) == ["ecmp_collision leaf1/up1"]


def test_answers_to_what_the_hosts_receive_are_no_flows_on_other_links() -> None:
    """In the seconds in which the hosts receive, too, each of the other links carries 1.2 %."""

    def with_answers(fabric: LeafSpine, second: int) -> None:
        for server in fabric.servers:
            fabric.send(49 * GBPS, f"{server}/eth0", "leaf1/up1")
        if second % 2:
            for number in (2, 3, 4):
                fabric.send(4.8 * GBPS, f"leaf1/up{number}")

    assert opened_by_eight(with_answers) == ["polarization leaf1/uplinks"]
