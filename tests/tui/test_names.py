"""The list of `:`: what a query finds, in what order, and how long it takes."""

from __future__ import annotations

import pytest

from fabmon.tui.key_table import KEYS
from fabmon.tui.line import FindingTarget, NodeTarget, PortTarget
from fabmon.tui.names import MOST, NameIndex, commands, metric_entries, scene_entries
from fabmon.tui.widgets.choosers import JumpPrompt
from tests import work
from tests.tui.fabrics import fabric
from tests.tui.running import running
from tests.tui.scenes import World
from tests.tui.worlds import COLLISION, big

SCENE = COLLISION.scene(70)
INDEX = NameIndex(COLLISION.fabric).with_others(
    [*commands(KEYS, ()), *metric_entries(SCENE.snapshot), *scene_entries(SCENE)]
)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("gpu003", "gpu003"),
        ("GPU003 r2", "gpu003 r2"),
        ("gpu3r2", "gpu003 r2"),
        ("l1u5", "leaf1 up5"),
        ("up5 leaf2", "leaf2 up5"),
        ("mlx5_3", "gpu001 r3"),
        ("collision", "ECMP collision leaf1 up5 → spine3"),
        ("errors", "errors"),
        ("pause-rx", "pause-rx"),
        ("switches", "Switches"),
        ("matrix", "Matrix of leaves and spines"),
        ("freeze", "Freeze or resume"),
    ],
)
def test_the_first_result(query: str, name: str) -> None:
    assert INDEX.search(query)[0].name == name


def test_a_node_is_before_its_ports_and_before_longer_names() -> None:
    index = NameIndex(fabric(leaves=2, hosts=12))
    names = [each.name for each in index.search("leaf1")]
    assert names[0] == "leaf1"
    assert names[1].startswith("leaf1 ")


def test_nothing_is_found_for_nonsense_and_everything_else_without_a_query() -> None:
    assert INDEX.search("zebra crossing") == []
    kinds = {each.kind for each in INDEX.search(" ")}
    assert kinds == {"view", "command", "metric", "finding"}


def test_a_query_with_special_characters_is_only_text() -> None:
    for query in ("(", "[a", ".*", "^", "\\", "a|b", "??"):
        INDEX.search(query)


def test_a_search_does_not_look_at_10000_names_one_by_one() -> None:
    index = NameIndex(big().fabric)
    assert len(index.search("g")) == MOST
    for query in ("g", "gpu", "gpu512", "gpu512 r3", "g512r3", "u r 7", "zzz", "1", "r3 gpu512"):
        with work.counted() as done:
            index.search(query)
        assert done.lines < 20_000, query


@pytest.mark.parametrize(
    ("typed", "view", "title"),
    [
        ("gpu003", "node", "gpu003"),
        ("gpu3r2", "port", "gpu003 r2"),
        ("collision", "finding", "ECMP collision leaf1 up5"),
        ("fluct", "fluctuation", "fluctuation"),
    ],
)
async def test_a_name_opens_what_it_names(typed: str, view: str, title: str) -> None:
    async with running(COLLISION) as run:
        await run.press("colon", *typed, "enter")
        await run.goes_to(view)
        assert title in run.lines[1]
        await run.press("escape")
        assert run.view == "overview"


async def test_a_metric_is_chosen_by_its_name_and_the_arrows_choose_another_line() -> None:
    async with running(COLLISION) as run:
        await run.press("ctrl+p", *"ecn", "enter")
        assert run.app.screen_state.choices.metric == "ecn"
        await run.press("colon", *"gpu00", "down", "down", "enter")
        await run.goes_to("node")
        assert "gpu003" in run.lines[1]


async def test_the_list_of_metrics_shows_unit_highest_value_and_meaning() -> None:
    async with running(COLLISION) as run:
        await run.press("v")
        row = next(line for line in run.lines if " cnp-sent " in line)
        assert "packets/s" in row
        assert "requests to senders to slow down" in row
        assert "● util" in run.text
        await run.press("j", "enter")
        assert run.app.screen_state.choices.metric == "tx"
        await run.press("M")
        assert run.app.screen_state.choices.metric == "util"
        await run.press("v", "escape")
        assert run.view == "overview"


async def test_the_whole_meaning_of_the_selected_metric_is_below_a_narrow_list() -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        await run.press("v")
        assert "traffic of the busier direction" in run.text
        await run.press("j", "j", "j")
        text = " ".join(run.text.split())
        assert "pause, % of time: paused by the neighbour, or pausing it: PFC and 802.3x" in text


async def test_the_whole_text_of_the_selected_name_is_below_a_narrow_list() -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        await run.press("colon", "down", "down", "down", "down", "down")
        text = " ".join(run.text.replace("│", " ").split())
        assert "fluctuation: variability of bandwidth by job" in text


async def test_a_menu_has_a_frame_and_keys_of_its_own() -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        for key in (":", "v", "x"):
            await run.press({":": "colon"}.get(key, key))
            assert "╭" in run.text
            assert "enter explain" not in run.text
            assert "esc cancel" in run.lines[-1]
            x = run.lines[-1].index("esc")
            await run.click(x, 23)
            assert "╭" not in run.text
            assert "enter explain" in run.lines[-1]
        await run.press("slash")
        assert run.lines[-1].split() == ["enter", "keep", "esc", "clear"]
        await run.press("escape")
        assert "enter explain" in run.lines[-1]


async def test_the_names_are_indexed_once_per_fabric() -> None:
    async with running(COLLISION) as run:
        await run.press("colon", "escape")
        first = run.app._name_index
        await run.send(COLLISION.scene(71))
        await run.press("colon", "escape")
        assert run.app._name_index is first
        await run.send(World(fabric(leaves=3), collides=30).scene(72))
        await run.press("colon")
        assert run.app._name_index is not first
        assert isinstance(run.app.screen, JumpPrompt)


def test_targets_are_those_of_the_fabric() -> None:
    node, port = INDEX.search("gpu002")[:2]
    assert node.opens == NodeTarget("gpu002")
    assert isinstance(port.opens, PortTarget)
    assert COLLISION.fabric.ports[port.opens.row].display_name == port.name
    found = INDEX.search("ecmp")[0]
    assert found.opens == FindingTarget(SCENE.findings[0].key)
