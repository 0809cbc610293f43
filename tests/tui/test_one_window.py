"""Every value of a screen is over the window that its header names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from fabmon.analysis.iteration.results import IterationReport
from fabmon.analysis.scene import Scene
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.fabric.time_window import TimeWindow, over, span
from fabmon.tui.metrics import heat_metric
from tests.tui.running import running
from tests.tui.scenes import World, row_of
from tests.tui.worlds import COLLISION

if TYPE_CHECKING:
    from fabmon.analysis.iteration.results import JobIteration

UTIL = heat_metric("util")


def paused_after(world: World, seq: int) -> Snapshot:
    """A snapshot in which all traffic pauses, after the ticks before it."""
    snapshot = world.scene(seq).snapshot
    silent = np.zeros_like(snapshot.tx_util)
    return replace(
        snapshot, tx_util=silent, rx_util=silent, heat=np.zeros_like(snapshot.heat), seq=seq + 1
    )


def shown(snapshot: Snapshot, window: TimeWindow = TimeWindow.MAX) -> Floats:
    """[ports] shares of line rate over a window."""
    return UTIL.values(over(snapshot, span(window, snapshot)))


def with_step(scene: Scene, step_s: float) -> Scene:
    job = cast("JobIteration", SimpleNamespace(step_s=step_s))
    return replace(scene, iteration_report=IterationReport(3.0, 16, (job,)))


@pytest.mark.parametrize(
    ("window", "ticks"), [(TimeWindow.TICK, 1), (TimeWindow.MEAN, 10), (TimeWindow.MINUTE, 60)]
)
def test_a_mean_is_that_of_the_ticks_of_its_window(window: TimeWindow, ticks: int) -> None:
    snapshot, row = World().scene(70).snapshot, row_of(World(), "gpu001/mlx5_0")
    seen = over(snapshot, span(window, snapshot))
    for column in ("tx_bps", "rx_bps", "ecn", "pause_rx"):
        own = snapshot.window(column, [row], ticks)[0]
        assert seen.column(column)[row] == pytest.approx(np.nanmean(own), rel=1e-5, nan_ok=True)
    assert seen.tx_util[row] == seen.column("tx_bps")[row] / snapshot.line_rate_bps[row]


def test_the_maximum_is_kept_while_traffic_pauses() -> None:
    world = World()
    snapshot, row = paused_after(world, 70), row_of(world, "gpu001/mlx5_0")
    before = world.scene(70).snapshot
    window = before.window("tx_bps", [row], 9), before.window("rx_bps", [row], 9)
    assert shown(snapshot)[row] == np.nanmax(window) / before.line_rate_bps[row]
    assert shown(snapshot, TimeWindow.TICK)[row] == 0


def test_traffic_from_before_a_link_slowed_down_is_no_share_of_its_rate_now() -> None:
    snapshot, row = paused_after(World(), 70), row_of(World(), "gpu001/mlx5_0")
    assert shown(snapshot)[row] > 0.5
    slower = replace(snapshot, line_rate_bps=snapshot.line_rate_bps / np.float32(4))
    assert shown(slower)[row] == 0


def test_a_rate_that_just_changed_is_not_divided_into_older_traffic() -> None:
    """Also where the old traffic would fit: 60 Gb/s of 400 are not 60 % of 100."""
    snapshot, row = paused_after(World(), 70), row_of(World(), "gpu001/mlx5_0")
    since = np.zeros(len(snapshot.up), np.intp)
    since[row] = snapshot.seq
    changed = replace(snapshot, rated_since=since)
    assert shown(changed)[row] == 0
    assert shown(changed)[row + 1] > 0.5
    assert shown(replace(changed, rated_since=since - 30))[row] > 0.5


class Unread:
    """A past of which nothing has been read yet."""

    def window(self, column: str, rows: Sequence[int], ticks: int, end_seq: int) -> Floats:
        return np.full((len(rows), ticks), np.nan, np.float32)


def test_right_after_a_jump_in_a_recording_values_are_those_of_this_tick() -> None:
    snapshot = World().scene(70).snapshot
    jumped = replace(snapshot, past=cast("Any", Unread()))
    for window in TimeWindow:
        assert np.array_equal(shown(jumped, window), UTIL.values(snapshot), equal_nan=True)


def test_a_window_is_named_by_its_length() -> None:
    scene = World().scene(70)
    known, none = with_step(scene, 14.2), with_step(scene, 0.0)
    assert [known.span(each).text for each in TimeWindow] == [
        *("this tick", "max of 14 s, a step", "mean of 10 s", "mean of 60 s"),
        "mean of 14 s, a step",
    ]
    assert [none.span(each).text for each in TimeWindow] == [
        *("this tick", "max of 10 s", "mean of 10 s", "mean of 60 s", "mean of 10 s")
    ]


def test_the_window_of_an_iteration_is_offered_where_one_is_known() -> None:
    window, seen = TimeWindow.MAX, []
    for _ in range(4):
        window = window.next(has_steps=False)
        seen.append(window.value)
    assert seen == ["mean", "minute", "tick", "max"]
    assert TimeWindow.MINUTE.next(has_steps=True) is TimeWindow.STEP
    assert TimeWindow.STEP.next(has_steps=False) is TimeWindow.TICK


async def test_a_narrow_header_has_no_room_for_the_window_and_a_message_says_it() -> None:
    async with running(COLLISION, size=(80, 24), toasts=True) as run:
        await run.press("p")
        await run.shows("all values: mean of 10 s")


async def test_a_message_says_which_colours_were_chosen() -> None:
    async with running(COLLISION, size=(80, 24), toasts=True) as run:
        await run.press("c")
        await run.shows("colours: cividis")
