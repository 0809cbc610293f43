"""Senders whose packets are lost on the way, as far as the counters of hosts show it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from collectors.wire import Object
from fabmon.analysis.detectors.packet_loss import loss_advice
from fabmon.fabric.wire.messages import Hello
from tests.builders import LeafSpine, Watched, hello, port

RATE, GBIT = 400e9, 1e9
NAKS, MISSED = "rdma_packet_sequence_errors", "rdma_out_of_sequence"
HOSTS = range(1, 17)


class Leaves(LeafSpine):
    """Hosts that report by LLDP which of some leaves they are cabled to, in order."""

    def __init__(self, leaves: int) -> None:
        damage = ("phy_rx_crc_errors", "phy_rx_errors")
        super().__init__(
            4, len(HOSTS), RATE, metrics=(NAKS, MISSED), leaf_metrics=damage, spine_metrics=damage
        )
        self._leaves = leaves

    def hellos(self) -> dict[str, Hello]:
        said = super().hellos()
        for number in HOSTS if self._leaves > 1 else ():
            leaf = f"leaf{(number - 1) * self._leaves // len(HOSTS) + 1}"
            info = {"dev": "eth0", "peer_node": leaf, "peer_port": f"down{number}"}
            name = f"gpu{number:03}"
            nic = port("eth0", f"{name}-eth0", self._host_metrics)
            said[name] = hello(nic, Object("lldp/eth0/1", "neighbour", None, info, ()))
        return said


class Ring(Watched):
    """Sixteen hosts of a ring behind some leaves, in their order; each sends to the next at 70 % of
    line rate."""

    def __init__(self, watched: Sequence[str] = ("gpu",), leaves: int = 1) -> None:
        fabric = Leaves(leaves)
        super().__init__(fabric, tuple(watched))
        for number in HOSTS:
            fabric.send(0.7 * RATE, f"gpu{number:03}/eth0", f"leaf1/down{number % 16 + 1}")

    def loses(self, per_gbit: float, *hosts: int) -> None:
        """So many packets of each Gbit that some hosts send to the next do not arrive."""
        for number in hosts:
            self.lose(per_gbit, number, number % 16 + 1)

    def lose(self, per_gbit: float, sender: int, receiver: int) -> None:
        """So many packets of each Gbit do not arrive from one host at another."""
        lost = per_gbit * 0.7 * RATE / GBIT
        self.fabric.counted[f"gpu{sender:03}/eth0", NAKS] = lost
        self.fabric.counted[f"gpu{receiver:03}/eth0", MISSED] = lost


def test_a_sender_whose_packets_are_lost_is_named_with_its_receiver() -> None:
    ring = Ring()
    ring.loses(3, *HOSTS)
    ring.seconds(12)
    assert ring.changes == []
    ring.loses(300, 5)
    scene = ring.seconds(12)
    (finding,) = scene.findings
    assert (finding.cause, finding.subject) == ("packet_loss", "gpu005/eth0")
    assert finding.victims == ("gpu006/eth0",)
    assert finding.lost == 0
    assert finding.text == (
        "packets of gpu005 r0 are lost on a path out of gpu005, and sent again: up to 300 NAKs per"
        " Gbit; no watched port shows damage, so the link is not known"
    )


@pytest.mark.parametrize(("per_gbit", "hosts"), [(20, [5]), (300, HOSTS), (300, range(1, 10))])
def test_losses_that_many_hosts_have_or_too_few_are_not_reported(
    per_gbit: float, hosts: Sequence[int]
) -> None:
    """One NAK for 1,500 packets of one host; one for a hundred of all, or of those that send to
    other leaves: packets that are overtaken count as lost."""
    ring = Ring()
    ring.loses(per_gbit, *hosts)
    ring.seconds(30)
    assert ring.changes == []


def test_sprayed_packets_that_overtake_each_other_are_not_lost() -> None:
    """In a ring in the order of the leaves, every fourth host sends over spines. They have NAKs
    around the threshold: at times only one of them is above it."""
    ring = Ring()
    ring.loses(35, 4)
    ring.loses(28, 8, 12, 16)
    ring.seconds(30)
    assert ring.changes == []


@pytest.mark.parametrize("leaves", [2, 4])
def test_packets_that_overtake_each_other_between_leaves_are_not_lost(leaves: int) -> None:
    """Between two leaves, every packet is of one and for the other."""
    ring = Ring(leaves=leaves)
    ring.loses(60, *range(16 // leaves, 17, 16 // leaves))
    ring.seconds(30)
    assert ring.changes == []


@pytest.mark.parametrize(
    ("pairs", "place"),
    [
        ([(1, 5), (2, 9), (3, 13)], "paths out of leaf1"),
        ([(5, 1), (9, 2), (13, 3)], "paths into leaf1"),
        ([(1, 5), (2, 9), (6, 3), (10, 4)], "paths of rail r0"),
    ],
)
def test_what_one_leaf_loses_has_one_place(pairs: list[tuple[int, int]], place: str) -> None:
    """A link of leaf1, in one direction or in both; none of its hosts has most of the losses."""
    ring = Ring(leaves=4)
    for sender, receiver in pairs:
        ring.lose(300, sender, receiver)
    ring.seconds(30)
    assert ring.opened() == [f"packet_loss {place}"]


def test_most_of_the_losses_at_one_host_are_not_enough() -> None:
    """Seven tenths: packets that overtake each other, of hosts that send at different rates."""
    ring = Ring()
    ring.loses(210, 5)
    ring.loses(90, 12)
    ring.seconds(30)
    assert ring.changes == []


def test_a_cable_that_damages_both_directions_has_one_place() -> None:
    """What gpu005 sends, and what gpu004 sends to it."""
    ring = Ring()
    ring.loses(300, 4, 5)
    ring.seconds(30)
    assert ring.opened() == ["packet_loss paths of rail r0"]


def test_a_moment_of_losses_is_not_reported() -> None:
    """A link that goes down loses what is under way, for as long as a slow counter shows it."""
    ring = Ring()
    ring.seconds(12)
    ring.loses(300, 5)
    ring.seconds(8)
    ring.loses(0, 5)
    ring.seconds(12)
    assert ring.changes == []


def test_a_port_that_counts_the_damage_explains_the_losses() -> None:
    ring = Ring(("gpu", "leaf1"))
    ring.seconds(12)
    ring.loses(300, 5)
    ring.fabric.counted["leaf1/down5", "phy_rx_crc_errors"] = 300 * 0.7 * RATE / GBIT
    ring.seconds(20)
    assert [each.split()[0] for each in ring.opened()] == ["error_burst"]


def test_a_watched_leaf_that_counts_no_damage_does_not() -> None:
    ring = Ring(("gpu", "leaf1"))
    ring.seconds(12)
    ring.loses(300, 5)
    ring.seconds(20)
    assert ring.opened() == ["packet_loss gpu005/eth0"]


def test_what_drops_packets_on_infiniband_is_not_pfc() -> None:
    assert "PFC" in loss_advice(has_credits=False)
    assert "PFC" not in loss_advice(has_credits=True)
    assert "port_xmit_discards" in loss_advice(has_credits=True)
