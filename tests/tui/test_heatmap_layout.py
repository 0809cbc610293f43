from __future__ import annotations

import numpy as np
import pytest

from fabmon.fabric.model import HOST, MANAGEMENT, Fabric, Node, Port
from fabmon.tui.heatmap_layout import build_grid
from tests.tui.fabrics import fabric


def cells(grid_ports: np.ndarray[tuple[int, int], np.dtype[np.intp]]) -> list[int]:
    return sorted(int(row) for row in grid_ports.ravel() if row >= 0)


def test_every_rail_and_uplink_has_one_place() -> None:
    made = fabric()
    grid = build_grid(made, 80, 40)
    rails = [p.row for p in made.ports if p.role in ("rail", "uplink")]
    spines = [p.row for p in made.ports if p.node.startswith("spine")]
    assert cells(grid.ports) == sorted(rails + spines)


def test_a_leafs_uplinks_stand_beside_its_hosts() -> None:
    made = fabric()
    grid = build_grid(made, 80, 40)
    part = grid.rows[1][0]
    assert part.node is not None
    assert part.beside is not None
    assert (part.node.name, part.beside.name) == ("gpu001", "leaf1")
    up1 = next(p for p in made.ports if p.node == "leaf1" and p.label == "up1")
    assert grid.place(up1.row) == (1, 8)


def test_rails_of_all_groups_are_below_each_other() -> None:
    made = fabric(leaves=3)
    grid = build_grid(made, 80, 40)
    assert (
        len({row[0].blocks[0] for row in grid.rows if row[0].blocks and row[0].group[0] == "l"})
        == 1
    )


def test_a_missing_nic_leaves_its_place_empty() -> None:
    made = fabric()
    host = made.node("gpu002")
    without = Node(host.name, host.role, host.group, host.ports[:3] + host.ports[4:], {})
    nodes = tuple(without if node.name == "gpu002" else node for node in made.nodes)
    grid = build_grid(Fabric(2, nodes, made.ports, made.groups), 80, 40)
    assert grid.ports[2, 3] == -1
    assert grid.ports[2, 4] == host.ports[4].row


@pytest.mark.parametrize("width", [40, 60, 80, 120, 240])
def test_nothing_is_wider_than_the_room_for_it(width: int) -> None:
    grid = build_grid(fabric(), width, 20)
    ends = [
        block.x + block.count * block.pitch
        for row in grid.rows
        for part in row
        for block in part.blocks
    ]
    assert max(ends) <= width


def test_cells_get_narrower_before_they_scroll_but_never_less_than_one() -> None:
    widths = [
        build_grid(fabric(), width, 40).rows[1][0].blocks[0].width for width in (240, 76, 48, 20)
    ]
    assert widths == [4, 2, 1, 1]


def test_groups_stand_side_by_side_only_when_they_are_too_high() -> None:
    made = fabric(leaves=4, hosts=8)
    low = build_grid(made, 200, 30)
    high = build_grid(made, 200, 60)
    assert max(len(row) for row in low.rows) > 1
    assert max(len(row) for row in high.rows) == 1
    assert cells(low.ports) == cells(high.ports)
    assert len(low.rows) <= 30


def test_what_is_filtered_away_takes_no_row() -> None:
    grid = build_grid(fabric(), 80, 40, frozenset({"gpu002"}))
    assert [row[0].node.name for row in grid.rows if row[0].node] == ["gpu002"]


def test_a_host_with_nothing_but_management_ports_shows_those() -> None:
    port = Port(0, "vm", "eth0", "ethernet", MANAGEMENT, 0, "m1", None, {})
    grid = build_grid(Fabric(1, (Node("vm", HOST, "", (port,), {}),), (port,), ()), 80, 20)
    assert grid.place(0) == (1, 0)


def test_an_empty_fabric_is_an_empty_grid() -> None:
    grid = build_grid(Fabric(0, (), (), ()), 80, 20)
    assert grid.rows == ()
    assert grid.ports.shape == (0, 0)
