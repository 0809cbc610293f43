"""What a heatmap shows of small and large fabrics, in terminals of many sizes."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from fabmon.fabric.model import HOST, MANAGEMENT, RAIL, Fabric, Node, Port
from fabmon.fabric.time_wording import SECOND_NS
from fabmon.tui.heatmap_layout import GridPart, HeatmapGrid, Kind, Level
from fabmon.tui.heatmap_levels import LevelChoice, build_grid
from fabmon.tui.heatmap_units import units_of, units_with_findings
from fabmon.tui.palette import Depth, palette
from fabmon.tui.text.heatmap_row_layout import PartTexts, placed_texts
from fabmon.tui.text.heatmap_rows import spread
from tests.tui.fabrics import fabric
from tests.tui.running import running
from tests.tui.scenes import World

SMALL = fabric(leaves=4, spines=8)
MEDIUM = fabric(leaves=32, spines=8)
LARGE = fabric(leaves=256, spines=8)
PANELS = {"80x24": (79, 12), "120x36": (75, 28), "160x48": (101, 38), "240x70": (168, 60)}
"""The room for the heatmap in terminals of these sizes."""


def shown_ports(grid: HeatmapGrid) -> set[int]:
    return {int(row) for row in grid.cells.ravel() if 0 <= row < grid.ports} | {
        int(row) for row in grid.members
    }


def parts(grid: HeatmapGrid, kind: Kind) -> list[GridPart]:
    return [part for row in grid.rows for part in row if part.kind is kind]


def last_column(grid: HeatmapGrid) -> int:
    return max(
        block.x + (block.count - 1) * block.pitch + block.width
        for row in grid.rows
        for part in row
        for block in part.blocks
    )


@pytest.mark.parametrize(
    ("made", "size", "level"),
    [
        (SMALL, "80x24", Level.LEAVES),
        (SMALL, "120x36", Level.PORTS),
        (SMALL, "160x48", Level.PORTS),
        (SMALL, "240x70", Level.PORTS),
        (MEDIUM, "80x24", Level.PODS),
        (MEDIUM, "160x48", Level.LEAVES),
        (MEDIUM, "240x70", Level.PORTS),
        (LARGE, "80x24", Level.PODS),
        (LARGE, "160x48", Level.PODS),
        (LARGE, "240x70", Level.PODS),
    ],
    ids=lambda value: str(len(value.nodes)) if isinstance(value, Fabric) else str(value),
)
def test_the_finest_level_that_fits_is_shown(made: Fabric, size: str, level: Level) -> None:
    width, height = PANELS[size]
    grid = build_grid(made, width, height)
    assert grid.level is level
    assert last_column(grid) <= width
    if (made, size) != (LARGE, "80x24"):
        assert len(grid.rows) <= height


def test_the_curves_of_hosts_with_and_without_gpus_are_as_long_as_their_label_says() -> None:
    made = fabric(leaves=1, hosts=3, gpus=8)
    storage = made.node("gpu003")
    rails = msgspec.structs.replace(
        storage, ports=tuple(port for port in storage.ports if port.role == RAIL)
    )
    nodes = tuple(rails if node is storage else node for node in made.nodes)
    grid = build_grid(msgspec.structs.replace(made, nodes=nodes), 150, 38)
    hosts = [part for part in parts(grid, Kind.NODE) if part.nodes[0].role == HOST]
    curves = {part.curve for part in hosts}
    assert len(curves) == 1
    ((_, columns),) = curves
    labels = [text for part in parts(grid, Kind.CAPTION) for _, text in part.labels]
    assert f"traffic of the last {columns} ticks" in labels


@pytest.mark.parametrize("made", [SMALL, MEDIUM, LARGE], ids=["16", "128", "1024"])
@pytest.mark.parametrize("size", PANELS)
def test_every_rail_and_uplink_is_in_a_cell(made: Fabric, size: str) -> None:
    grid = build_grid(made, *PANELS[size])
    wanted = {port.row for port in made.ports if port.role in ("rail", "uplink")}
    assert wanted <= shown_ports(grid)


@pytest.mark.parametrize("size", PANELS)
def test_a_collision_among_1024_hosts_is_on_the_first_screen(size: str) -> None:
    width, height = PANELS[size]
    grid = build_grid(LARGE, width, height, choice=LevelChoice(first=("leaf181",)))
    up3 = next(p for p in LARGE.ports if p.node == "leaf181" and p.label == "up3")
    place = grid.place(up3.row)
    assert place is not None
    assert place[0] < height
    assert grid.ports_at(place) == [up3.row]
    part = grid.part(place)
    assert part is not None
    assert part.title == "leaf181"
    assert part.note[1] >= 16


def test_units_with_findings_come_first_and_the_rest_stays_in_order() -> None:
    grid = build_grid(MEDIUM, *PANELS["160x48"], choice=LevelChoice(first=("leaf30", "leaf7")))
    titles = [part.title for part in parts(grid, Kind.UNIT)]
    assert titles[:5] == ["leaf30", "leaf7", "leaf1", "leaf2", "leaf3"]
    assert titles[-2:] == ["leaf32", "spines"]
    assert "2 with findings first" in grid.rows[0][0].title


def test_a_finding_belongs_to_the_unit_of_its_first_port() -> None:
    world = World(MEDIUM, collides=30)
    findings = world.scene(70).findings
    assert units_with_findings(units_of(MEDIUM), MEDIUM, findings) == ("leaf1",)


def test_an_expanded_leaf_shows_every_port_below_its_row() -> None:
    closed = build_grid(LARGE, *PANELS["160x48"])
    opened = build_grid(LARGE, *PANELS["160x48"], choice=LevelChoice(opened=("leaf100",)))
    assert opened.level is closed.level
    assert [part.title for part in parts(opened, Kind.NODE)] == [
        f"gpu{number}" for number in range(397, 401)
    ]
    assert [part.title for part in parts(opened, Kind.UPLINKS)] == ["leaf100"]


def test_pods_of_the_fabric_are_kept_apart() -> None:
    pods = {f"leaf{n}": "east" if n <= 130 else "west" for n in range(1, 257)}
    pods |= {f"gpu{n:03d}": "east" if n <= 130 * 4 else "west" for n in range(1, 1025)}
    shape = type(LARGE.shape)(LARGE.shape.tiers, {}, pods)
    made = Fabric(1, LARGE.nodes, LARGE.ports, LARGE.groups, shape)
    rows = parts(build_grid(made, *PANELS["160x48"]), Kind.POD)
    groups = [{pods[node.name] for node in part.nodes} for part in rows]
    assert all(len(each) == 1 for each in groups)


def test_the_users_level_is_shown_even_where_it_must_scroll() -> None:
    grid = build_grid(LARGE, *PANELS["160x48"], choice=LevelChoice(Level.PORTS))
    assert len(parts(grid, Kind.NODE)) == 1024 + 8
    grid = build_grid(SMALL, *PANELS["160x48"], choice=LevelChoice(Level.LEAVES))
    assert len(parts(grid, Kind.UNIT)) == 5


def test_the_busiest_port_of_a_row_is_not_cut_inside_its_name_or_its_value() -> None:
    part = parts(build_grid(fabric(), 80, 6), Kind.UNIT)[0]
    part = replace(part, note=(60, 14), curve=(0, 0))
    made = {}
    for value in ("54.7 %", "<0.01 %"):
        texts = PartTexts(" ", value=value, port="spine1 dn4")
        made[value] = [text for _, text, _ in placed_texts(part, texts, 8, palette(Depth.NONE))]
    assert made["54.7 %"][-2:] == ["54.7 %", "spine1"]
    assert made["<0.01 %"][-2:] == ["<.01 %", "spine1"]


def test_nvlinks_are_the_level_below_ports() -> None:
    made = fabric(leaves=1, gpus=2)
    assert not parts(build_grid(made, 100, 60), Kind.GPU)
    grid = build_grid(made, 100, 60, choice=LevelChoice(Level.LINKS))
    assert len(parts(grid, Kind.GPU)) == 4 * 2
    links = {port.row for port in made.ports if port.role == "nvlink"}
    assert links <= shown_ports(grid)


def test_uplinks_are_in_the_row_of_their_switch_labelled_1_5_10() -> None:
    made = fabric(leaves=2, spines=16, hosts=2)
    grid = build_grid(made, 100, 40)
    captions = [part for part in parts(grid, Kind.CAPTION) if part.labels]
    labels = [label.strip() for _, label in captions[0].labels]
    assert labels == ["uplinks", "1", "5", "10", "15", "max"]
    uplinks = parts(grid, Kind.UPLINKS)
    assert [part.title for part in uplinks] == ["leaf1", "leaf2"]
    labels = [label for _, label in captions[1].labels]
    assert labels[:9] == ["rail", *"01234567"]


def test_a_missing_nic_leaves_its_place_empty() -> None:
    made = fabric()
    host = made.node("gpu002")
    without = Node(host.name, host.role, host.group, host.ports[:3] + host.ports[4:], {})
    nodes = tuple(without if node.name == "gpu002" else node for node in made.nodes)
    grid = build_grid(Fabric(2, nodes, made.ports, made.groups), 80, 40)
    y = next(y for y, row in enumerate(grid.rows) if row[0].title == "gpu002")
    assert grid.cells[y, 3] == -1
    assert grid.cells[y, 4] == host.ports[4].row


def test_hosts_without_a_switch_are_units_of_a_few() -> None:
    nodes: list[Node] = []
    ports: list[Port] = []
    for number in range(1, 257):
        name = f"gpu{number:03d}"
        own = [
            Port(len(ports) + n, name, f"mlx5_{n}", "infiniband", RAIL, n, f"r{n}", None, {})
            for n in range(8)
        ]
        ports += own
        nodes.append(Node(name, HOST, "", tuple(own), {}))
    made = Fabric(1, tuple(nodes), tuple(ports), ())
    assert [unit.title for unit in units_of(made)][:2] == ["gpu001-032", "gpu033-064"]
    grid = build_grid(made, *PANELS["160x48"])
    assert grid.level is Level.LEAVES
    assert shown_ports(grid) == set(range(len(ports)))
    assert len(grid.rows) <= PANELS["160x48"][1]


def test_a_host_with_nothing_but_management_ports_shows_those() -> None:
    port = Port(0, "vm", "eth0", "ethernet", MANAGEMENT, 0, "m1", None, {})
    grid = build_grid(Fabric(1, (Node("vm", HOST, "", (port,), {}),), (port,), ()), 80, 20)
    assert grid.place(0) == (1, 0)


def test_an_empty_fabric_is_an_empty_grid() -> None:
    grid = build_grid(Fabric(0, (), (), ()), 80, 20)
    assert grid.rows == ()
    assert grid.cells.shape == (0, 0)


def test_an_aggregate_shows_the_highest_level_and_every_mark() -> None:
    from fabmon.tui.cells import ABSENT, DOWN, FLAGGED, SELECTED, STALE

    made = fabric(leaves=1, hosts=3)
    grid = build_grid(made, 60, 40, choice=LevelChoice(Level.LEAVES))
    hosts = [made.node(f"gpu00{n}") for n in (1, 2, 3)]
    codes = np.full(len(made.ports), ABSENT, np.uint16)
    codes[[port.row for port in hosts[0].ports]] = [3, 9, 5, 1, 0, 2, 4, ABSENT]
    codes[hosts[0].ports[0].row] |= FLAGGED | SELECTED
    codes[hosts[1].ports[2].row] = DOWN
    codes[[port.row for port in hosts[2].ports]] = 7 | STALE
    cells = spread(grid, codes)
    places = [grid.place(host.ports[0].row) for host in hosts]
    assert [int(cells[place]) for place in places if place] == [
        9 | FLAGGED | SELECTED,
        DOWN,
        7 | STALE,
    ]


def _texts_of(
    note: tuple[int, int], curve: tuple[int, int], texts: PartTexts
) -> list[tuple[int, str]]:
    part = GridPart(Kind.UNIT, 0, "leaf1", "leaf1", (), (), (), note=note, curve=curve)
    made = placed_texts(part, texts, 8, palette(Depth.TRUECOLOR))
    return [(x, text) for x, text, _ in made if text]


def test_a_long_name_of_a_port_and_the_curve_behind_it_do_not_touch() -> None:
    texts = PartTexts("  ", value="98.2 %", port="gpu003 r7", curve="▁" * 40)
    *_, (at, name), (begin, curve) = _texts_of((20, 53), (33, 40), texts)
    assert name == "gpu003 r7"
    assert begin == at + len(name) + 1
    assert begin + len(curve) == 33 + 40
    short = PartTexts("  ", value="98.2 %", port="up5", curve="▁" * 40)
    assert _texts_of((20, 53), (33, 40), short)[-1] == (33, "▁" * 40)


def test_a_name_has_the_room_of_a_curve_that_is_not_there() -> None:
    texts = PartTexts("  ", value="98.2 %", port="spine3 dn12")
    assert _texts_of((20, 16), (37, 40), texts)[-1][1] == "spine3 dn12"


@pytest.mark.parametrize("first", ["switch", "NIC"])
async def test_where_a_finding_has_no_room_its_mark_and_nic_replace_the_busiest_uplink(
    first: str,
) -> None:
    """Under the heading of the busiest uplink a name alone would be read as one."""
    world = World(SMALL, collides=30)
    scene = world.scene(70)
    nic = world.fabric.node("gpu002").ports[3]
    row = nic.peer if first == "switch" else nic.row
    assert row is not None
    found = msgspec.structs.replace(
        scene.findings[0], cause="incast", subject=nic.id, rows=(row,), seen_ns=None
    )
    faded = msgspec.structs.replace(found, seen_ns=scene.snapshot.time_ns - 10 * SECOND_NS)
    async with running(world, size=(80, 24)) as run:
        for finding, mark in ((found, "▲"), (faded, "△")):
            await run.send(replace(scene, findings=(finding,)))
            row_of_leaf = next(line for line in run.lines if line[1:].startswith(f"{mark} leaf1 "))
            assert f" {mark} gpu002 r3" in row_of_leaf[20:]
            assert "%" not in row_of_leaf
