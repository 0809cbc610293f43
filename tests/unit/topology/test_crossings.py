"""Which cables stand in the matrix, and where."""

from __future__ import annotations

from fabmon.fabric.topology.tier_matrix import UNKNOWN, TierLink, TierMatrix, tables
from tests.unit.topology.making import Plant, leaf_spine


def ends(hardware: Plant, table: TierMatrix, low: str, high: str) -> list[tuple[str, str]]:
    ports = hardware.fabric().ports

    def name(row: int | None) -> str:
        return "-" if row is None else ports[row].id

    return [(name(each.low), name(each.high)) for each in table.cells.get((low, high), ())]


def test_leaves_stand_beside_spines_and_each_cable_is_there_once() -> None:
    hardware = Plant(leaf_spine(leaves=2, spines=2))
    hardware.lldp("leaf1/swp60", "spine1/swp9")
    (table,) = tables(hardware.fabric())
    assert (table.title, table.lows, table.highs) == (
        "leaf by spine",
        ("leaf1", "leaf2"),
        ("spine1", "spine2"),
    )
    assert ends(hardware, table, "leaf1", "spine1") == [
        ("leaf1/swp50", "spine1/swp1"),
        ("leaf1/swp60", "spine1/swp9"),
    ]
    assert sum(map(len, table.cells.values())) == 5


def test_a_spine_that_is_not_watched_has_its_column() -> None:
    hardware = Plant(leaf_spine(), unwatched=["spine2"])
    hardware.routes("leaf1", "swp50", "swp51")
    (table,) = tables(hardware.fabric())
    assert table.highs == ("spine1", "spine2")
    assert ends(hardware, table, "leaf1", "spine2") == [("leaf1/swp51", "-")]


def test_a_leaf_that_is_not_watched_has_its_row() -> None:
    hardware = Plant(leaf_spine(), unwatched=["leaf2"])
    hardware.hears("spine1/swp2", "leaf2/swp50", peer_role="switch")
    fabric = hardware.fabric('[topology.tiers]\nleaf = "leaf[1-2]"\n', "pod7.toml")
    (table,) = tables(fabric)
    assert table.lows == ("leaf1", "leaf2")
    (crossing,) = table.cells["leaf2", "spine2"]
    assert crossing.low is None


def test_uplinks_that_lead_nowhere_known_are_drawn_as_unknown() -> None:
    hardware = Plant(leaf_spine(spines=1))
    hardware.port("leaf1/swp60")
    hardware.routes("leaf1", "swp50", "swp60")
    (table,) = tables(hardware.fabric())
    assert table.highs == ("spine1", UNKNOWN)
    assert ends(hardware, table, "leaf1", UNKNOWN) == [("leaf1/swp60", "-")]


def test_three_tiers_are_two_tables_and_each_pod_one() -> None:
    cables = []
    for pod in (1, 2):
        cables += [(f"gpu{pod}/e", f"leaf{pod}/p1"), (f"leaf{pod}/u", f"spine{pod}/p")]
        cables.append((f"spine{pod}/u", f"core1/p{pod}"))
    found = tables(Plant(cables).fabric())
    assert [table.title for table in found] == [
        *("leaf by spine, pod1", "leaf by spine, pod2", "spine by core, pod1"),
        "spine by core, pod2",
    ]


def test_hosts_alone_have_no_matrix() -> None:
    assert tables(Plant([("gpu1/eth0", "gpu2/eth0")]).fabric()) == ()
    assert TierLink(1, None).low == 1
