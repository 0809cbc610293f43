"""Numbers beside each other have one basis, and a page opens on what its finding is about."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from fabmon.fabric.wording import Unit, bit_rate
from fabmon.tui.palette import Depth
from fabmon.tui.run_facts import RunFacts
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.flows import Bundle, _bundles
from fabmon.tui.text.pages.fluctuation import _stretched
from fabmon.tui.text.pages.waterfall import Waterfall
from fabmon.tui.text.picture.canvas import Canvas
from fabmon.tui.text.picture.pause_tree import pause_tree
from fabmon.tui.text.picture.pictures import link_ends
from tests.tui.running import running
from tests.tui.scenes import World
from tests.tui.worlds import COLLISION


def context(world: World = COLLISION, seq: int = 70) -> DrawContext:
    scene = world.scene(seq)
    state = ScreenState(RunFacts("pod7"), Depth.NONE)
    state.take(scene)
    return state.draw_context(scene, 100, 30)


@pytest.mark.parametrize(
    ("cause", "metric"),
    [
        ("ecmp_collision", "tx"),
        ("incast", "util"),
        ("pause_storm", "pause"),
        ("degraded_link", "util"),
        ("link_down", "util"),
    ],
)
def test_the_waterfall_opens_on_the_metric_of_its_finding(cause: str, metric: str) -> None:
    """No port has errors in this world: a degraded link without them is about its rate."""
    ctx = context()
    finding = msgspec.structs.replace(ctx.scene.findings[0], cause=cause)
    assert Waterfall(ctx, finding, 2).metric.name == metric
    assert Waterfall(ctx, finding, 2, chosen="ecn").metric.name == "ecn"


async def test_m_in_the_waterfall_chooses_another_metric() -> None:
    async with running(COLLISION, size=(120, 36)) as run:
        await run.press("m", "4", "g", "enter", "w")
        assert "% of line rate, tx" in run.lines[1]
        await run.press("m")
        assert "% of line rate, rx" in run.lines[1]


def test_the_rate_of_a_nic_is_shown_once_whatever_the_number_of_its_flows() -> None:
    ctx = context()
    src, one, other = (port.row for port in ctx.fabric.node("gpu001").ports[:3])
    lines = [
        line.text
        for line in _bundles(
            ctx,
            [Bundle(src, dst, 1, "job 1", (), 2) for dst in (one, other)],
        )
    ]
    *said, first, second = lines
    rate = ctx.traffic(src, "tx")
    assert rate in first
    assert rate not in second
    assert "all that it sends, to all its receivers" in " ".join(" ".join(said).split())


def test_a_short_curve_fills_its_room_and_a_long_one_is_averaged() -> None:
    short = np.array([1, np.nan, 3], np.float32)
    assert _stretched(short, 6).tolist()[:2] == [1, 1]
    assert np.isnan(_stretched(short, 6)[2:4]).all()
    assert _stretched(np.array([1, 3, 5, 7], np.float32), 2).tolist() == [2, 6]


def test_what_a_slow_receiver_receives_is_of_the_second_in_which_it_pauses_most() -> None:
    """As in its sentence, not a mean: seconds without pause or traffic do not count."""
    row = COLLISION.guilty[0]
    peer = COLLISION.fabric.ports[row].peer
    assert peer is not None
    world = replace(COLLISION, paused=((peer, 0.32),))
    scene = world.scene(49)
    received = world.window("rx_bps", [row], 5, 49)[0]
    assert received[-5] > 0 == received[-1]
    finding = msgspec.structs.replace(scene.findings[0], cause="slow_receiver", rows=(row,))
    state = ScreenState(RunFacts("pod7"), Depth.NONE)
    state.take(scene)
    ctx = state.draw_context(scene, 100, 30)
    title, shown = (each.text for each in pause_tree(Canvas(ctx, finding))[:2])
    assert f"32.0 % pauses others  receives {bit_rate(received[-5])}" in shown
    assert "at 14:07:25Z, when they waited most" in title


@pytest.mark.parametrize("color", ["truecolor", "none"])
async def test_a_finding_that_no_longer_holds_is_a_hollow_triangle_in_every_view(
    color: str,
) -> None:
    """Also at its port's cell, and it is not counted with those that hold."""
    scene = COLLISION.scene(70)
    (held,) = scene.findings
    faded = msgspec.structs.replace(held, seen_ns=scene.snapshot.time_ns - 9 * 10**9)
    async with running(size=(140, 44), color=color) as run:
        await run.send(replace(scene, findings=(faded,), events=()))
        keys = ("2", "3", "5", "7", "4", "enter", "w", "1")
        for key in ("", *keys):
            if key:
                await run.press(key)
            assert "△ 1 finding" in run.lines[0]
            shown = run.text.replace("▲ flagged", "")
            assert "▲" not in shown, key
            assert key in ("3", "5", "7") or "△" in shown.replace("△ 1 finding", ""), key
        label = COLLISION.fabric.ports[held.rows[0]].display_name
        await run.press("colon", *label, "enter")
        assert "△ ECMP collision" in run.text


def test_the_ends_of_a_cable_have_the_chosen_unit() -> None:
    ctx = context()
    finding = msgspec.structs.replace(ctx.scene.findings[0], cause="degraded_link")
    for unit, suffix in ((Unit.GBIT, "b/s"), (Unit.GBYTE, "B/s"), (Unit.PERCENT, "%")):
        first = link_ends(Canvas(replace(ctx, choices=replace(ctx.choices, unit=unit)), finding))[
            1
        ].text
        assert first.partition(" tx ")[2].split("  ")[0].endswith(suffix)
