"""The matrix where not everything is known, in every colour mode, and walked through."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabmon.fabric.model import Cable, Fabric, Port
from tests.tui import golden
from tests.tui.fabrics import fabric
from tests.tui.running import running
from tests.tui.scenes import World
from tests.tui.worlds import COLLISION, troubled


def partly_known() -> World:
    """spine4 is not watched, and nobody says where leaf2's last two uplinks lead."""
    made = fabric()

    def seen(port: Port) -> Port:
        if port.node == "spine4":
            return _with(port, -1, None)
        if port.name in ("swp39", "swp40"):
            known = port.node == "leaf1"
            return _with(port, None, Cable("spine4", "swp1", ("LLDP",)) if known else None)
        return port

    ports = tuple(map(seen, made.ports))
    nodes = tuple(
        type(node)(node.name, node.role, node.group, tuple(ports[p.row] for p in node.ports), {})
        for node in made.nodes
        if node.name != "spine4"
    )
    return World(Fabric(1, nodes, ports, made.groups, made.shape))


def _with(port: Port, peer: int | None, cable: Cable | None) -> Port:
    gone = peer == -1
    return Port(
        port.row,
        "" if gone else port.node,
        *(port.name, port.kind, port.role, port.index, port.label),
        None,
        port.info,
        cable,
    )


async def test_what_is_not_known_is_drawn_as_unknown() -> None:
    async with running(partly_known(), size=(80, 24)) as run:
        await run.press("5")
        golden.check("matrix-unknown", run.text)
        await run.press("right", "right", "right", "enter")
        golden.check("pair-not-watched", run.text)
        await run.press("escape", "down", "right", "right", "right", "right", "enter")
        golden.check("pair-unknown", run.text)


@pytest.mark.parametrize("color", ["256", "16", "none"])
async def test_the_matrix_in_every_colour_mode(color: str) -> None:
    async with running(COLLISION, size=(80, 12), color=color) as run:
        await run.press("5")
        golden.check(f"matrix-{color}", run.text)


@pytest.mark.parametrize("color", ["truecolor", "256", "16", "none"])
async def test_the_cursor_is_seen_and_what_it_is_on_is_said(color: str) -> None:
    async with running(COLLISION, size=(100, 12), color=color) as run:
        await run.press("5", "right", "right")
        row = next(line for line in run.lines if line.startswith(" leaf1"))
        assert row.index("[") == run.lines[3].index("spine3") - 1
        assert row.count("[") == row.count("]") == 1
        said = run.lines[-2]
        assert said.startswith(
            " leaf1 → spine3  max of 2 links  up  393 Gb/s 98.2 %  down  189 Gb/s"
        )
        assert "▲ ECMP collision" in said
        await run.press("down")
        assert run.lines[-2].startswith(" leaf2 → spine3  max of 2 links")
        assert "collision" not in run.lines[-2]


async def test_a_link_that_is_down_is_said_of_the_pair_under_the_cursor() -> None:
    made = fabric()
    world = replace(COLLISION, fabric=made, down=(made.groups[0].rows[0],))
    async with running(world, size=(100, 12)) as run:
        await run.press("5")
        assert "✖ 1 down" in run.lines[-2]


async def test_digits() -> None:
    async with running(COLLISION, size=(80, 12)) as run:
        await run.press("5", "C")
        golden.check("matrix-digits", run.text)


async def test_a_pair_opens_its_cables_and_a_cable_its_port() -> None:
    async with running(troubled(), size=(100, 30)) as run:
        await run.press("5", "down", "right", "enter")
        assert run.view == "pair"
        assert "leaf2 → spine2" in run.text
        await run.press("enter")
        assert run.view == "port"
        assert "cabled to spine2 dn3 (spine2/swp3; LLDP, neighbour MAC)" in run.text
        await run.press("escape", "escape")
        assert run.view == "matrix"


async def test_a_link_that_is_down_shows_in_its_pair() -> None:
    made = fabric()
    row = made.groups[0].rows[0]
    async with running(replace(COLLISION, fabric=made, down=(row,)), size=(80, 12)) as run:
        await run.press("5")
        assert "✖" in next(line for line in run.lines if line.startswith(" leaf1"))


async def test_each_leaf_has_its_ratio_of_links_that_are_up() -> None:
    """Half of the uplinks of leaf1 are down."""
    made = fabric(leaves=2, spines=4, hosts=1)
    below = sum(port.node == "leaf1" and port.role == "downlink" for port in made.ports)
    (above,) = (each.rows for each in made.groups if made.ports[each.rows[0]].node == "leaf1")
    whole, half = f"{below / len(above):g}:1", f"{2 * below / len(above):g}:1"
    world = World(made, down=above[: len(above) // 2])
    async with running(world, size=(80, 12)) as run:
        await run.press("5")
        assert f"down:up {whole} to {half}" in run.lines[2]
        assert run.lines[3].split()[:2] == ["down:up", "spine1"]
        leaf1, leaf2 = (next(t for t in run.lines if t.startswith(f" leaf{n}")) for n in (1, 2))
        assert leaf1.split()[1].rstrip("[") == half
        assert leaf2.split()[1] == whole


async def test_many_spines_go_on_below() -> None:
    world = World(fabric(leaves=3, spines=40, hosts=1))
    async with running(world, size=(60, 24)) as run:
        await run.press("5")
        golden.check("matrix-many", run.text)


async def test_the_filter_leaves_rows() -> None:
    async with running(COLLISION, size=(80, 12)) as run:
        await run.press("5", "slash", *"leaf2", "enter")
        assert " leaf1 " not in run.text
        assert " leaf2 " in run.text


async def test_without_switches_it_says_what_to_do() -> None:
    async with running(World(fabric(leaves=1, spines=1, hosts=1, rails=1)), size=(80, 12)) as run:
        await run.press("5", "slash", *"gpu", "enter")
        assert "No switch matches the filter" in run.text
        await run.press("2")
        assert "No switch matches the filter" in run.text
    alone = fabric(leaves=1, spines=1, hosts=1, rails=1)
    hosts = tuple(node for node in alone.nodes if node.role == "host")
    async with running(World(Fabric(1, hosts, alone.ports, ())), size=(80, 12)) as run:
        await run.press("5")
        assert "--topology" in run.text


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 48)])
async def test_a_small_matrix_fills_the_screen_and_has_numbers(size: tuple[int, int]) -> None:
    world = World(fabric(leaves=8, spines=8, hosts=4), collides=30)
    async with running(world, size=size) as run:
        await run.press("5")
        drawn = [line.rstrip() for line in run.lines[3:-2]]
        assert max(map(len, drawn)) > 0.8 * size[0]
        if size[1] >= 36:
            assert "98▲" in run.text
