"""The links of a finding over time: a row a link, a column a stretch of time."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from fabmon.fabric.time_wording import MINUS, SECOND_NS
from fabmon.tui.cells import ABSENT, READING, SELECTED, scale
from fabmon.tui.metrics import heat_metric
from fabmon.tui.palette import RAMPS, Depth
from fabmon.tui.run_facts import RunFacts
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.screens.finding import WaterfallScreen
from fabmon.tui.text.pages.finding import page
from fabmon.tui.text.pages.node import node_page
from fabmon.tui.text.pages.port import page as port_page
from fabmon.tui.text.pages.waterfall import Waterfall
from tests import work
from tests.tui import golden
from tests.tui.recordings import past_of
from tests.tui.running import Running, running
from tests.tui.scenes import World
from tests.tui.worlds import COLLISION, big

ECN = heat_metric("ecn")
GAPPED = replace(COLLISION, gap=range(40, 44))
_SAME_CELLS = {"truecolor": "colours", "256": "colours"}
"""Colour modes whose cells are the same characters."""


async def _open(run: Running) -> None:
    await run.press("4", "enter", "w")
    assert run.view == "waterfall"


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 40), (200, 60)])
async def test_it_opens_from_the_finding_and_closes(size: tuple[int, int]) -> None:
    async with running(GAPPED, size=size) as run:
        await _open(run)
        assert len(run.lines) == size[1]
        if size in ((80, 24), (120, 40)):
            golden.check(f"waterfall-{size[0]}x{size[1]}", run.text)
        await run.press("escape")
        assert run.view == "finding"


@pytest.mark.parametrize("color", ["truecolor", "256", "16", "none"])
@pytest.mark.parametrize("digits", [False, True])
async def test_every_colour_mode(color: str, digits: bool) -> None:
    async with running(GAPPED, size=(120, 24), color=color) as run:
        await _open(run)
        if digits:
            await run.press("C")
        name = "none" if color == "none" else "digits" if digits else _SAME_CELLS.get(color, color)
        golden.check(f"waterfall-{name}", "\n".join(run.lines[1:12]))


async def test_all_colours_are_drawn() -> None:
    async with running(GAPPED) as run:
        await _open(run)
        for _ in RAMPS:
            await run.press("c")
            assert "up8" in run.text


async def test_it_zooms_and_says_how_far_back() -> None:
    async with running(GAPPED) as run:
        await _open(run)
        seen = []
        for key in ("plus", "plus", "minus", "minus", "minus", "minus"):
            await run.press(key)
            seen.append(next(line for line in run.lines if "now" in line).split(" min")[0].strip())
        assert seen == [f"{MINUS}{minutes}" for minutes in (1, 1, 2, 5, 10, 10)]


@pytest.mark.parametrize(
    ("ago_s", "minutes", "timeline_s"),
    [(60, 2, None), (121, 5, None), (600, 10, None), (601, 10, 1800), (5000, 10, 3 * 3600)],
)
def test_of_a_finding_that_ended_it_opens_with_all_of_the_finding(
    ago_s: int, minutes: int, timeline_s: int | None
) -> None:
    scene = COLLISION.scene(70)
    now_ns = scene.snapshot.time_ns
    ended = msgspec.structs.replace(
        scene.findings[0],
        since_ns=now_ns - ago_s * SECOND_NS,
        until_ns=now_ns - (ago_s - 9) * SECOND_NS,
    )
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.take(scene)
    zoom = WaterfallScreen(screen_state, ended, past_of()).zoom
    assert zoom.minutes == minutes
    assert zoom.is_timeline == (timeline_s is not None)
    assert timeline_s in (None, screen_state.cursor.span_s(has_now=True))
    from_ns, _ = screen_state.cursor.window(now_ns, None)
    assert min(from_ns, now_ns - zoom.minutes * 60 * SECOND_NS) <= ended.since_ns


async def test_the_cursor_says_what_a_cell_is_and_opens_its_port() -> None:
    async with running(GAPPED, size=(200, 60)) as run:
        await _open(run)
        # Two minutes find room second by second.
        assert "leaf1 up5 → spine3 dn1  14:07:50Z, 1 s: tx 98." in run.text
        await run.press("down", "left")
        assert "leaf1 up6 → spine3 dn2  14:07:49Z, 1 s: tx" in run.text
        for _ in range(26):
            await run.press("left")
        assert "14:07:23Z, 1 s: no data" in run.text
        await run.press("enter")
        assert run.view == "port"
        assert "leaf1 up6" in run.lines[1]


async def test_other_metrics_say_how_long_they_are_kept() -> None:
    async with running(GAPPED) as run:
        await _open(run)
        assert "% of line rate, tx" in run.lines[1]
        await run.press("m", "m", "m")
        assert "% of time paused" in run.lines[1]
        assert "8.10 %" in next(line for line in run.lines[2:] if "up5" in line)
        await run.press("minus")
        assert "kept for 2 min" in run.lines[1]


def fall(world: World, seq: int, minutes: int = 2, width: int = 119) -> Waterfall:
    scene, screen_state = world.scene(seq), ScreenState(RunFacts("pod7"), Depth.TRUECOLOR)
    screen_state.take(scene)
    return Waterfall(screen_state.draw_context(scene, width), scene.findings[0], minutes)


def test_a_stretch_keeps_its_value_while_time_goes_on() -> None:
    """Columns move on as a whole: nothing flickers."""
    before, after = fall(COLLISION, 70), fall(COLLISION, 70 + 2)
    assert before.began_ns(before.columns - 2) == after.began_ns(after.columns - 3)
    assert np.array_equal(before.values[:, 20:-1], after.values[:, 19:-2], equal_nan=True)


def test_a_time_is_in_the_column_that_began_before_it() -> None:
    for seq in range(70, 76):
        made = fall(COLLISION, seq, width=80)
        for column in range(made.columns):
            assert made.column(made.began_ns(column)) == column


def test_before_the_finding_began_its_links_are_shown() -> None:
    """As when a user goes back in time from the page of a finding."""
    screen_state = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR)
    screen_state.take(COLLISION.scene(5))
    (finding,) = COLLISION.scene(70).findings
    made = Waterfall(screen_state.draw_context(COLLISION.scene(5), 119), finding, 2)
    assert made.column(finding.since_ns) >= made.columns
    assert "━" not in str(made.axis)


def test_a_short_peak_is_never_lost() -> None:
    wide, narrow = fall(COLLISION, 70), fall(COLLISION, 70, width=60)
    assert np.nanmax(wide.values) == np.nanmax(narrow.values)


def test_what_is_not_known_is_absent() -> None:
    made = fall(World(collides=30), 40, minutes=10)
    assert (made.codes[:, 0] == ABSENT).all()
    assert (made.codes[:, -1] != ABSENT).all()


def test_what_is_being_read_is_not_absent() -> None:
    """After a seek only the tick itself is there, until the minutes before it are analysed."""
    scene, screen_state = (
        World(collides=30).scene(40),
        ScreenState(RunFacts("pod7"), Depth.TRUECOLOR),
    )
    screen_state.take(scene)
    screen_state.show(scene)
    screen_state.cursor.is_settled = False
    made = Waterfall(screen_state.draw_context(scene, 119), scene.findings[0], 10)
    assert (made.codes[:, 0] == READING).all()
    assert "being read from the recording" in str(made.cell_text((0, 0)))
    assert made.look.picture(READING, 1)[0] == "…"
    screen_state.cursor.is_settled = True
    made = Waterfall(screen_state.draw_context(scene, 119), scene.findings[0], 10)
    assert (made.codes[:, 0] == ABSENT).all()
    assert "no data" in str(made.cell_text((0, 0)))


def test_on_pages_and_cells_what_is_being_read_is_not_absent() -> None:
    """No counter, bar or cell is said to be absent before the minutes before it are read."""
    scene, screen_state = (
        World(collides=30).scene(40),
        ScreenState(RunFacts("pod7"), Depth.TRUECOLOR),
    )
    unknown = np.full_like(scene.snapshot.heat, np.nan)
    past = replace(scene.snapshot, seq=-1000, heat=unknown, last_heat=unknown)
    scene = replace(scene, snapshot=past)
    screen_state.take(scene)
    screen_state.show(scene)
    finding = msgspec.structs.replace(scene.findings[0], cause="degraded_link")
    port = scene.snapshot.fabric.ports[finding.rows[0]]
    for is_settled, sign, says in ((True, ABSENT, True), (False, READING, False)):
        screen_state.cursor.is_settled = is_settled
        ctx = screen_state.draw_context(scene, 119)
        drawn = [*page(ctx, finding, True), *port_page(ctx, port, 2)]
        drawn += node_page(ctx, scene.snapshot.fabric.node(port.node))
        text = "\n".join(each.text for each in drawn)
        assert ("not counted here" in text) is says
        assert ("bsent" in text) is says
        codes = ctx.codes(scale(ECN, Depth.TRUECOLOR, False), ECN)
        assert (codes | SELECTED == sign | SELECTED).all()


BIG = big()


def test_it_costs_little() -> None:
    """For a tree of 512 ports."""
    scene, screen_state = BIG.scene(70), ScreenState(RunFacts("pod7"), Depth.TRUECOLOR)
    screen_state.take(scene)
    finding = msgspec.structs.replace(
        scene.findings[0], cause="slow_receiver", rows=tuple(range(512))
    )
    ctx = screen_state.draw_context(scene, 239)
    assert Waterfall(ctx, finding, 2).codes.size  # makes what is kept
    with work.counted() as done:
        made = Waterfall(ctx, finding, 2)
        assert made.codes.shape[0] == len(made.rows) == 512
    assert done.lines < 200_000
