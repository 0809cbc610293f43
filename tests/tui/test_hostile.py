"""What nodes say is text: no markup, no escape, no name too wide."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabmon.analysis.finding import Change
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.model import Fabric, Node, Port
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.fabric.wire.messages import Notice
from fabmon.tui.text.pages.port_facts import port_facts
from tests.tui.fabrics import fabric
from tests.tui.running import running
from tests.tui.scenes import START_NS, World

EVIL = "[red]x[/red][@click=app.quit]y[/]"
VIEWS: tuple[tuple[str, ...], ...] = (
    ("1",), ("2",), ("n",), ("4",), ("enter",), ("enter", "enter"), ("4", "enter"),
    ("question_mark",), ("slash", "y"),
)  # fmt: skip


def hostile(name: str) -> Scene:
    """A scene in which everything that a node may say says this."""
    made = fabric(leaves=1, spines=2, hosts=2, rails=2)

    def port(p: Port) -> Port:
        node = name if p.node == "gpu001" else p.node
        return Port(p.row, node, name + p.name, p.kind, p.role, p.index, p.label, p.peer,
                    {**p.info, "driver": name, name: name})  # fmt: skip

    ports = tuple(port(p) for p in made.ports)
    nodes = tuple(
        Node(
            name if n.name == "gpu001" else n.name,
            n.role,
            name if n.group == "leaf1" else n.group,
            tuple(ports[p.row] for p in n.ports),
            {"hostname": name, name: name},
        )
        for n in made.nodes
    )
    world = World(Fabric(1, nodes, ports, made.groups), collides=30)
    scene = world.scene(33)
    statuses = dict(scene.snapshot.statuses)
    statuses[name] = NodeStatus(name, NodeState.LOST, START_NS, name, name)
    statuses["gpu002"] = NodeStatus("gpu002", NodeState.LOST, START_NS, name, name)
    notice = Notice("absent", name, name, name, name, name)
    snapshot = replace(
        scene.snapshot,
        statuses=statuses,
        notices={name: (notice,)},
        columns={**scene.snapshot.columns, name: 0},
    )
    finding = world._findings(33, snapshot.time_ns)[0]
    fields = {key: getattr(finding, key) for key in finding.__struct_fields__}
    fields |= {"text": name, "advice": name, "victims": (name,), "subject": name, "unseen": name}
    evil = type(finding)(**fields)
    event = Event(snapshot.time_ns, 33, "node", name)
    return Scene(snapshot, (evil,), ((Change.OPEN, evil),), (event,))


@pytest.mark.parametrize("keys", VIEWS, ids=" ".join)
@pytest.mark.parametrize("size", [(60, 18), (120, 40)])
async def test_markup_is_shown_as_it_is(keys: tuple[str, ...], size: tuple[int, int]) -> None:
    async with running(size=size) as run:
        await run.send(hostile(EVIL))
        await run.press(*keys)
        for strip in run.app.screen._compositor.render_strips():
            for segment in strip:
                assert "\x1b" not in segment.text
                if segment.style and "quit" in str(segment.style.meta):
                    assert segment.text in ("q", " quit")
        assert run.app.is_running


async def test_markup_in_a_toast_is_text() -> None:
    async with running(size=(120, 40)) as run:
        await run.send(hostile(EVIL))
        assert EVIL[:20] in run.text


@pytest.mark.parametrize("name", ["節点" * 30, "x" * 400, "", "a\u0301" * 50, "👩‍🚀" * 40])
@pytest.mark.parametrize("keys", VIEWS, ids=" ".join)
async def test_names_of_any_width_do_not_break_the_screen(name: str, keys: tuple[str, ...]) -> None:
    async with running(size=(80, 24)) as run:
        await run.send(hostile(name))
        await run.press(*keys)
        strips = run.app.screen._compositor.render_strips()
        assert {strip.cell_length for strip in strips} == {80}


@pytest.mark.parametrize(
    "affinity", [{"mlx5_0": [1]}, {"mlx5_0": {}}, {"mlx5_0": None}, [1], "PIX"]
)
def test_what_is_no_path_to_a_nic_is_not_shown(affinity: object) -> None:
    assert port_facts({"affinity": affinity}) == ""


def test_the_paths_to_nics_beside_nonsense_are_shown() -> None:
    assert port_facts({"affinity": {"mlx5_0": [1], "mlx5_1": "PIX"}}) == "nearest NIC mlx5_1 (PIX)"
