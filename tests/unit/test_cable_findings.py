"""A fault of a cable is one finding, named by the same end, whatever its two ends report."""

from __future__ import annotations

import msgspec
import pytest

from fabmon.fabric.model import Host
from fabmon.fabric.tick import Tick
from tests.builders import (
    LeafSpine,
    Watched,
    frame,
    hello,
    new_pipeline,
    port,
    tick,
    up,
    without_neighbours,
)

HOST, LEAF = "gpu002/eth0", "leaf1/down2"
DAMAGE = "phy_rx_crc_errors"


class Forgetful(LeafSpine):
    """A fabric whose ports report no neighbour from a second on, as LLDP does of a link that is
    down; `forgets` are their nodes."""

    def __init__(self) -> None:
        super().__init__(uplinks=2, hosts=4, metrics=(DAMAGE,), leaf_metrics=(DAMAGE,))
        self.forgets: set[str] = set()

    def step(self) -> Tick:
        made, hellos = super().step(), []
        for node in sorted(self.forgets):
            hellos.append((node, without_neighbours(self.hellos()[node], node, (HOST, LEAF))))
        return msgspec.structs.replace(made, hellos=made.hellos + tuple(hellos))


def test_a_link_that_is_down_is_one_finding_though_neither_end_knows_its_neighbour() -> None:
    fabric = Forgetful()
    leaf = Watched(fabric)
    leaf.seconds(5)
    fabric.down |= {HOST, LEAF}
    fabric.forgets |= {"leaf1", "gpu002"}
    scene = leaf.seconds(3)
    assert leaf.opened() == [f"link_down {HOST}"]
    (finding,) = scene.findings
    assert {scene.snapshot.fabric.ports[row].id for row in finding.rows} == {HOST, LEAF}
    assert finding.unseen == ""


def test_where_no_cable_was_ever_known_it_is_not_said_that_the_other_end_is_not_watched() -> None:
    fabric = Forgetful()
    fabric.forgets |= {"leaf1", "gpu002"}
    leaf = Watched(fabric)
    leaf.seconds(3)
    leaf.fabric.down.add(LEAF)
    (finding,) = leaf.seconds(2).findings
    assert finding.unseen == "the other end: its cable is not known"


class OneHost:
    """A host whose ports come and go, a tick a second."""

    def __init__(self) -> None:
        self.pipeline = new_pipeline([Host(name="a")])
        self.seq = 0

    def changes(self, seconds: int, *states: int) -> list[tuple[str, str]]:
        """What changes while it reports so many ports, with their states."""
        found: list[tuple[str, str]] = []
        said = hello(*(port(f"eth{n}", metrics=("netdev_up",)) for n in range(len(states))))
        for _ in range(seconds):
            seq = self.seq
            each = tick(seq, {"a": frame(seq, *states)}, {"a": said}, up("a"))
            changes = self.pipeline.accept(each).changes
            found += ((change.value, finding.text) for change, finding in changes)
            self.seq += 1
        return found


def test_a_link_that_is_down_stays_so_while_its_node_does_not_report_the_port() -> None:
    """A NIC that was lost from the bus after its link was an alert that is resolved."""
    host = OneHost()
    assert host.changes(5, 1, 1) == []
    assert host.changes(5, 1, 0) == [("open", "a r1 is down")]
    assert host.changes(60, 1) == []
    assert host.changes(5, 1, 0) == []
    assert host.changes(60, 1, 1) == [("close", "a r1 is down")]


def test_a_port_that_is_gone_for_a_day_is_no_link_that_is_down() -> None:
    host = OneHost()
    host.changes(5, 1, 1)
    host.changes(5, 1, 0)
    assert host.changes(60, 1) == []
    host.seq += 86_000
    assert host.changes(200, 1) == []
    host.seq += 200
    gone = "a r1 is down; its port is no longer reported"
    assert host.changes(60, 1) == [("close", gone)]


def test_a_link_that_goes_down_again_within_minutes_says_how_often() -> None:
    leaf = Watched(LeafSpine())
    leaf.seconds(5)
    for times, pause_s in enumerate((130, 130, 400), start=1):
        leaf.fabric.down.add("leaf1/up2")
        (finding,) = leaf.seconds(3).findings
        counts = [each.value for each in finding.evidence if each.name == "opened"]
        assert counts == [times][: times - 1]
        leaf.fabric.down.clear()
        leaf.seconds(pause_s)
    leaf.fabric.down.add("leaf1/up2")
    (finding,) = leaf.seconds(3).findings
    assert finding.evidence == (), "that was long ago"


@pytest.mark.parametrize("ends", [(HOST, LEAF), (LEAF, HOST)])
def test_damage_at_one_end_then_at_the_other_is_one_finding(ends: tuple[str, str]) -> None:
    leaf = Watched(Forgetful())
    leaf.seconds(12)
    for end in ends:
        leaf.fabric.counted = {(end, DAMAGE): 5000.0}
        scene = leaf.seconds(14)
        (finding,) = scene.findings
        assert scene.snapshot.fabric.ports[finding.rows[0]].id == end, "it receives the damage"
    assert leaf.opened() == [f"degraded_link {HOST}"]
