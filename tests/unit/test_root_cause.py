"""Which findings are root causes: hand-made conditions on a leaf with four hosts."""

from __future__ import annotations

import pytest

from fabmon.analysis.fabric_structure import FabricStructure, build_structure
from fabmon.analysis.finding import CRITICAL, Condition, Trait
from fabmon.analysis.root_cause import keep_root_causes
from fabmon.fabric.model import Host
from tests.builders import LeafSpine, Watched, frame, hello, new_pipeline, port, tick, up


@pytest.fixture(scope="module")
def structure() -> FabricStructure:
    leaf = LeafSpine(uplinks=2, hosts=4, rate_bps=400e9)
    return build_structure(Watched(leaf).seconds(2).snapshot.fabric)


def condition(
    structure: FabricStructure,
    cause: str,
    subject: str,
    *ports: str,
    victims: tuple[str, ...] = (),
    unless: tuple[Trait, ...] = (),
) -> Condition:
    rows = {port.id: port.row for port in structure.fabric.ports}
    return Condition(
        cause=cause,
        severity=CRITICAL,
        subject=subject,
        rows=tuple(rows[port] for port in ports),
        text="",
        evidence=(),
        advice="",
        confidence=1.0,
        victims=victims,
        unless=unless,
    )


def kept(structure: FabricStructure, *conditions: Condition) -> list[str]:
    """The causes that are reported."""
    return [each.cause for each in keep_root_causes(conditions, (), structure)[0]]


def test_carriers_that_change_on_a_lost_node_are_part_of_it(structure: FabricStructure) -> None:
    """It has restarted: all its ports change carrier. One alone may be why the node is lost."""
    lost = condition(structure, "node_lost", "gpu001", "gpu001/eth0")
    first = condition(structure, "flapping_link", "gpu001/eth0", "gpu001/eth0")
    second = condition(structure, "flapping_link", "gpu001/eth1", "gpu001/eth0")
    other = condition(structure, "flapping_link", "gpu002/eth0", "gpu002/eth0")
    assert kept(structure, lost, first, second) == ["node_lost"]
    assert kept(structure, lost, first) == ["node_lost", "flapping_link"]
    assert kept(structure, lost, other) == ["node_lost", "flapping_link"]


def test_a_pause_storm_makes_the_cycles_of_pause(structure: FabricStructure) -> None:
    storm = condition(structure, "pause_storm", "gpu001/eth0", "gpu001/eth0", "leaf1/up1")
    elsewhere = condition(structure, "pause_storm", "gpu002/eth0", "gpu002/eth0", "leaf1/up2")
    cycle = condition(structure, "pause_deadlock", "leaf1/up1", "leaf1/up1")
    assert kept(structure, storm, cycle) == ["pause_storm"]
    assert kept(structure, elsewhere, cycle) == ["pause_storm", "pause_deadlock"]
    assert kept(structure, cycle) == ["pause_deadlock"]


def test_an_incast_behind_a_full_group_is_the_group(structure: FabricStructure) -> None:
    """Its senders are slowed by the group already."""
    full = condition(
        structure,
        "oversubscription",
        "leaf1/uplinks",
        "leaf1/up1",
        "leaf1/up2",
        victims=("leaf1/down1", "leaf1/down2"),
    )
    incast = condition(
        structure,
        "incast",
        "gpu001/eth0",
        "leaf1/down1",
        "gpu001/eth0",
        unless=(Trait.FULL_GROUP,),
    )
    assert kept(structure, full, incast) == ["oversubscription"]
    assert kept(structure, incast) == ["incast"]


def test_a_collision_in_a_full_group_is_the_group(structure: FabricStructure) -> None:
    """It fills link by link, also while its finding is open and does not hold for a moment."""
    group = ("leaf1/up1", "leaf1/up2")
    full = condition(structure, "oversubscription", "leaf1/uplinks", *group)
    collision = condition(structure, "ecmp_collision", "leaf1/up2", "leaf1/up2", "leaf1/up1")
    kept_now, explained = keep_root_causes([full], [collision], structure)
    assert kept_now == [full]
    assert explained == {collision.key}
    assert keep_root_causes([collision], [full], structure) == ([], {collision.key})
    elsewhere = condition(structure, "ecmp_collision", "leaf1/down1", "leaf1/down1")
    assert keep_root_causes([elsewhere], [full], structure) == ([elsewhere], set())


def test_the_senders_of_an_incast_anywhere_send_more_on_its_rail() -> None:
    """Two hosts of two rails, and no known cable: the incast's rail is the busy one."""
    names = ("gpu001", "gpu002")
    pipeline = new_pipeline([Host(name=name, speeds=(("*", 400e9),)) for name in names])
    rails = hello(port("mlx5_0", "02:00:00:00:00:01"), port("mlx5_1", "02:00:00:00:00:02"))
    frames = {name: frame(0, *[0] * 8) for name in names}
    scene = pipeline.accept(tick(0, frames, dict.fromkeys(names, rails), up(*names)))
    structure = build_structure(scene.snapshot.fabric)

    def uneven(*unless: Trait) -> Condition:
        rows = "gpu001/mlx5_1", "gpu001/mlx5_0"  # the low one, the busy one
        return condition(structure, "uneven_rails", "rails r1", *rows, unless=unless)

    incast = condition(structure, "incast", "gpu002/mlx5_0", "gpu002/mlx5_0")
    assert kept(structure, incast, uneven(Trait.ONE_RAIL)) == ["incast"]
    assert kept(structure, incast, uneven(Trait.FULL_GROUP)) == ["incast", "uneven_rails"]
    assert kept(structure, uneven(Trait.ONE_RAIL)) == ["uneven_rails"]


def test_what_closed_a_moment_ago_excuses_what_was_inferred_of_before(
    structure: FabricStructure,
) -> None:
    full = condition(structure, "oversubscription", "leaf1/uplinks", "leaf1/up1")
    inferred = condition(structure, "congested_path", "leaf1", "gpu001/eth0")
    excused = condition(
        structure, "congested_path", "leaf1", "gpu001/eth0", unless=(Trait.FULL_GROUP,)
    )
    assert keep_root_causes([inferred], (), structure, [full])[0] == [inferred]
    assert keep_root_causes([excused], (), structure, [full])[0] == []
    assert keep_root_causes([excused], (), structure)[0] == [excused]
