"""Senders whose packets are lost on the way, as far as the counters of hosts show it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.builders import LeafSpine, Watched

RATE, GBIT = 400e9, 1e9
NAKS, MISSED = "rdma_packet_sequence_errors", "rdma_out_of_sequence"
HOSTS = range(1, 17)


class Ring(Watched):
    """Sixteen hosts of a ring behind one leaf; each sends to the next at 70 % of line rate."""

    def __init__(self, watched: Sequence[str] = ("gpu",)) -> None:
        damage = ("phy_rx_crc_errors", "phy_rx_errors")
        fabric = LeafSpine(
            4, 16, RATE, metrics=(NAKS, MISSED), leaf_metrics=damage, spine_metrics=damage
        )
        super().__init__(fabric, tuple(watched))
        for number in HOSTS:
            fabric.send(0.7 * RATE, f"gpu{number:03}/eth0", f"leaf1/down{number % 16 + 1}")

    def loses(self, per_gbit: float, *hosts: int) -> None:
        """So many packets of each Gbit that some hosts send do not arrive."""
        for number in hosts:
            lost = per_gbit * 0.7 * RATE / GBIT
            self.fabric.counted[f"gpu{number:03}/eth0", NAKS] = lost
            self.fabric.counted[f"gpu{number % 16 + 1:03}/eth0", MISSED] = lost


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
