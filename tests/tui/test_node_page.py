"""The page of a node: a table of its ports, with what they share said once."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from fabmon.fabric.tick import NodeState
from fabmon.tui.line import PortTarget
from fabmon.tui.palette import Depth
from fabmon.tui.run_facts import RunFacts
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.text.pages.node import node_page
from tests.tui.fabrics import fabric
from tests.tui.running import running
from tests.tui.scenes import World
from tests.tui.worlds import troubled

LEAVES = World(fabric(leaves=2, spines=32, hosts=4), collides=30)
"""Leaves with 32 uplinks and 32 downlinks."""


def page(world: World, node: str, width: int, height: int) -> list[str]:
    scene = world.scene(70)
    state = ScreenState(RunFacts("pod7"), Depth.NONE)
    state.take(scene)
    ctx = state.draw_context(scene, width - 1, height - 3)
    return [line.text.rstrip() for line in node_page(ctx, scene.snapshot.fabric.node(node))]


@pytest.mark.parametrize("size", [(120, 36), (160, 48), (240, 70)])
def test_64_ports_of_a_leaf_are_on_one_page(size: tuple[int, int]) -> None:
    shown = page(LEAVES, "leaf1", *size)
    assert len(shown) <= size[1] - 3
    words = " ".join(shown).split()
    assert {f"{stem}{n}" for stem in ("up", "dn") for n in range(1, 33)} <= set(words)


def test_what_the_nics_share_is_said_once_and_what_differs_at_its_nic() -> None:
    shown = page(troubled(), "gpu001", 120, 36)
    text = "\n".join(shown)
    assert text.count("mlx5_core") == text.count("fw_ver") == 1
    assert text.count("PCIe 32 GT/s x16,") == 1
    odd = next(n for n, line in enumerate(shown) if "x8 of x16" in line)
    assert shown[odd - 1].split()[0] == "r0"
    assert "netdev eth0" in shown[odd]


def test_a_list_of_what_ports_share_is_not_broken_where_it_fits_a_line() -> None:
    shown = page(troubled(), "gpu001", 120, 36)
    head = next(n for n, each in enumerate(shown) if each.startswith(" 8 rails"))
    assert shown[head].endswith("fw_ver 28.39.1002")
    assert shown[head + 1].strip().startswith("0 unless shown: errors, drops, ECN, CNP sent, XOFF")
    assert shown[head + 1].endswith("absent: CNP")


def test_counters_that_are_zero_or_absent_are_named_once_others_at_their_port() -> None:
    shown = page(LEAVES, "leaf1", 160, 48)
    assert "0 unless shown: errors, drops, ECN" in shown[2]
    assert shown[2].endswith("absent: CNP")
    assert next(line for line in shown if "ECN 12.3 k/s" in line).split()[:2] == ["▲", "up5"]


def test_where_no_other_end_is_known_there_is_no_column_for_it() -> None:
    nodes = tuple(
        msgspec.structs.replace(
            node, ports=tuple(msgspec.structs.replace(port, peer=None) for port in node.ports)
        )
        for node in LEAVES.fabric.nodes
    )
    world = replace(LEAVES, fabric=msgspec.structs.replace(LEAVES.fabric, nodes=nodes))
    known, unknown = (
        next(line for line in page(each, "gpu001", 80, 24) if line.split()[0] == "port")
        for each in (LEAVES, world)
    )
    assert "→ to" in known
    assert "→" not in unknown


def test_what_cannot_be_seen_of_a_node_is_on_its_page() -> None:
    known = LEAVES.fabric.node("leaf1")
    text = "qps: /proc hides the processes of other accounts (hidepid=2)"
    limited = msgspec.structs.replace(known, limits=(text,))
    nodes = tuple(limited if each is known else each for each in LEAVES.fabric.nodes)
    world = replace(LEAVES, fabric=msgspec.structs.replace(LEAVES.fabric, nodes=nodes))
    assert f"   ? limited {text}" in page(world, "leaf1", 160, 48)


def test_a_port_that_is_down_says_so() -> None:
    row = next(line for line in page(troubled(), "gpu003", 80, 24) if " r2 " in line)
    assert row.split()[0] == "✖"
    assert row.endswith("down")


async def test_the_cursor_reaches_every_port_of_a_table_with_columns() -> None:
    async with running(LEAVES, size=(120, 36)) as run:
        await run.press("3", "g", "enter")
        assert "leaf1" in run.lines[1]
        await run.press("l", "l", "j", "enter")
        assert run.view == "port"


def test_every_port_can_be_opened() -> None:
    scene = LEAVES.scene(70)
    state = ScreenState(RunFacts("pod7"), Depth.NONE)
    state.take(scene)
    node = scene.snapshot.fabric.node("leaf1")
    lines = node_page(state.draw_context(scene, 119, 33), node)
    opened = {hit.target for line in lines for hit in line.hits}
    opened |= {line.target for line in lines if line.target is not None}
    assert {PortTarget(port.row) for port in node.ports} <= opened


def test_why_a_node_does_not_answer_is_told_whole() -> None:
    """Also the command that helps, at its end."""
    command = "ssh-keyscan -p 22 leaf1 >> known_hosts"
    reason = f"host key unknown: ssh-ed25519 SHA256:{'x' * 43}; {command}"
    scene = LEAVES.scene(70)
    known = scene.snapshot.statuses["leaf1"]
    status = msgspec.structs.replace(known, state=NodeState.FAILED, reason=reason)
    statuses = {**scene.snapshot.statuses, "leaf1": status}
    scene = replace(scene, snapshot=replace(scene.snapshot, statuses=statuses))
    state = ScreenState(RunFacts("pod7"), Depth.NONE)
    state.take(scene)
    ctx = state.draw_context(scene, 79, 21)
    shown = [line.text for line in node_page(ctx, scene.snapshot.fabric.node("leaf1"))]
    assert all(len(line) <= 79 for line in shown)
    assert command in " ".join(" ".join(shown).split())


def test_of_more_ports_than_any_node_has_so_many_are_on_the_page() -> None:
    shown = page(World(fabric(leaves=1, spines=600, hosts=1)), "leaf1", 80, 24)
    assert shown[-1] == "   96 more ports: / filters"
