"""Hours and days of what is recorded, in the waterfall and in the curves of a port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.time_wording import MINUS
from fabmon.recording.format.minutes import MINUTE_NS
from fabmon.recording.reading.rate_tiers import Tier, TierQuery
from fabmon.recording.writing.writer import Writer
from fabmon.tui.cells import ABSENT, READING
from fabmon.tui.screens.finding import WaterfallScreen
from fabmon.tui.screens.line_screens import PortScreen
from fabmon.tui.text.pages.waterfall import LongWaterfall
from fabmon.tui.time.trend import with_memory
from tests.tui.golden import check
from tests.tui.long_past import write_day
from tests.tui.recordings import Watching, recording_of, replaying
from tests.tui.running import Running, running
from tests.tui.scenes import row_of
from tests.tui.worlds import COLLISION

GAP = range(400, 640)
"""Minutes ago."""


@asynccontextmanager
async def after_a_day(home: Path, size: tuple[int, int]) -> AsyncIterator[Running]:
    """A screen after 40 s of watching, recorded, and a day of it before with a gap."""
    watching = Watching()
    scenes = watching.record(home / "now.fabrec", 40)
    day = write_day(
        home / "day.fabrec", watching.session, [each.snapshot for each in scenes[10:]], 1500, GAP
    )
    recording = recording_of(day, home / "now.fabrec")
    async with running(size=size, recording=recording) as run:
        await run.send(*scenes)
        yield run


async def all_is_read(run: Running) -> None:
    def is_read() -> bool:
        screen = run.app.screen
        assert isinstance(screen, WaterfallScreen | PortScreen)
        return screen.loader is not None and not screen.loader.progress

    await run.until(is_read)


def drawn(run: Running) -> LongWaterfall:
    screen = run.app.screen
    assert isinstance(screen, WaterfallScreen)
    assert isinstance(screen._drawn, LongWaterfall)
    return screen._drawn


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_day_in_the_waterfall(tmp_path: Path, size: tuple[int, int]) -> None:
    async with after_a_day(tmp_path, size) as run:
        await run.press("4", "enter", "w", *"-------")
        await all_is_read(run)
        assert "12 h, highest of each" in run.lines[1]
        await run.press("-")
        await all_is_read(run)
        assert "1 d, highest of each" in run.lines[1]
        made = drawn(run)
        gap = [made.column(made.ctx.snapshot.time_ns - n * 60_000_000_000) for n in (620, 420)]
        assert np.isnan(made.values[:, gap[0] + 1 : gap[1]]).all()
        assert np.isfinite(made.values[:, [gap[0] - 2, gap[1] + 2, -1]]).all()
        if size == (80, 24):
            check(f"waterfall-day-{size[0]}x{size[1]}", run.text)
        await run.press("left")
        assert "at most" in run.text
        await run.press(*"+++++", "+")
        await run.shows(f"{MINUS}10 min")
        assert "highest of each" not in run.lines[1]


async def test_what_is_still_being_read_is_not_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with after_a_day(tmp_path, (120, 40)) as run:
        await run.press("4", "enter", "w")
        screen = run.app.screen
        assert isinstance(screen, WaterfallScreen)
        assert screen.loader is not None
        monkeypatch.setattr(screen.loader, "is_reading", lambda: True)
        await run.press(*"--------")
        assert (drawn(run).codes == READING).any()
        monkeypatch.undo()
        await all_is_read(run)
        await run.press("left")
        assert (drawn(run).codes == ABSENT).any()
        assert not (drawn(run).codes == READING).any()


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_day_of_a_port(tmp_path: Path, size: tuple[int, int]) -> None:
    async with after_a_day(tmp_path, size) as run:
        await run.press("4", "enter", "enter", *"-------")
        await all_is_read(run)
        assert run.view == "port"
        await run.shows("tx, Gb/s, 1 d, highest of each", f"{MINUS}1 d")
        if size == (80, 24):
            check(f"port-day-{size[0]}x{size[1]}", run.text)


async def test_the_zoom_is_the_strips(tmp_path: Path) -> None:
    async with after_a_day(tmp_path, (120, 40)) as run:
        await run.press("1", *"----------")
        assert "Last 3 d" in run.text
        await run.press("4", "enter", "w")
        await all_is_read(run)
        assert "3 d, highest of each" in run.lines[1]
        assert (np.isnan(drawn(run).values[:, :40])).all()
        await run.press("+", "1")
        assert "Last 1 d" in run.text


async def test_the_last_minutes_are_those_of_memory(tmp_path: Path) -> None:
    """What is in no minute yet is there from the first moment on, and moves on with every tick."""
    watching = Watching()
    scenes = [watching.next() for _ in range(40)]
    recording = recording_of(tmp_path / "none.fabrec")
    (tmp_path / "none.fabrec").write_bytes(b"")
    async with running(recording=recording) as run:
        await run.send(*scenes)
        await run.press("4", "enter", "w", "-", "-", "-")
        await run.shows("30 min: the recording cannot be read")
        made = drawn(run)
        rows = [port.row for port in made.ports]
        known = scenes[-1].snapshot.window("tx_bps", rows, 40)
        share = np.nanmax(known / scenes[-1].snapshot.line_rate_bps[rows][:, None], axis=1)
        assert np.allclose(np.nanmax(made.values, axis=1), share)
        await run.send(watching.next())
        assert drawn(run).ctx.snapshot.seq == scenes[-1].snapshot.seq + 1


def test_more_time_has_no_lower_highest_value() -> None:
    """Recorded values are rounded: 98.2 % may be recorded as 98.0 %."""
    newest, rows = COLLISION.scene(70).snapshot, [row_of(COLLISION, "leaf1/swp37")]
    exact = float(np.nanmax(newest.window("tx_bps", rows, 60)))
    bins = TierQuery(("leaf1/swp37",), ("tx_bps",), False, 10 * MINUTE_NS, 0, 1)
    bins = bins._replace(first=newest.time_ns // bins.bin_ns)
    for recorded, expected in ((0.996 * exact, exact), (0.5 * exact, 0.5 * exact * 129 / 128)):
        highest = np.full((1, 1, 1), recorded, np.float32)
        known = Tier(bins, newest.time_ns + 1, highest, highest)
        found = with_memory(known, newest, rows)
        assert found.highest.item() == pytest.approx(expected, rel=1e-6)
        assert found.mean.item() == highest.item()


async def test_of_a_replay_all_is_shown_around_the_cursor(tmp_path: Path) -> None:
    """It says what the ticks say, and the cursor has its mark."""
    watching = Watching()
    scenes = watching.record(tmp_path / "a.fabrec", 200)
    async with replaying(tmp_path / "a.fabrec", from_s=40) as run:
        await run.until(lambda: run.app.screen_state.cursor.at_end)
        await run.press("t", *"14:07:20", "enter")
        await run.until(
            lambda: "▲ 1 finding" in run.lines[0] and run.app.screen_state.cursor.is_settled
        )
        await run.press("4", "enter", "w", "-", "-", "-")
        await all_is_read(run)
        assert "30 min, highest of each 30 s" in run.lines[1]
        made = drawn(run)
        assert "▼" in made.axis.text
        rows = [port.row for port in made.ports]
        tx = HEAT.index("tx_bps")
        for column in range(made.columns):
            inside = [
                scene.snapshot.heat[tx, rows] / scene.snapshot.line_rate_bps[rows]
                for scene in scenes
                if made.column(scene.snapshot.time_ns) == column
            ]
            known = np.fmax.reduce(inside) if inside else np.full(len(rows), np.nan)
            assert np.allclose(made.values[:, column], known, atol=0.008, equal_nan=True)


async def test_other_metrics_reach_back_too(tmp_path: Path) -> None:
    """Memory keeps two minutes of them: beyond, they are read."""
    async with after_a_day(tmp_path, (120, 40)) as run:
        await run.press("4", "enter", "w", "m", "m", "m", "-")
        await all_is_read(run)
        assert "5 min, highest of each 10 s" in run.lines[1]
        assert "kept for" not in run.lines[1]
        assert np.isfinite(drawn(run).values[:, :-5]).any()


async def test_minutes_that_end_meanwhile_are_read(tmp_path: Path) -> None:
    watching = Watching()
    writer = Writer.create(tmp_path / "now.fabrec", watching.session)
    recording = recording_of(tmp_path / "now.fabrec")
    async with running(recording=recording) as run:
        await run.send(*(watching.write(writer) for _ in range(40)))
        await run.press("4", "enter", "w", "-", "-", "-")
        await all_is_read(run)
        known_ns = drawn(run).tier.known_ns
        for _ in range(90):
            await run.send(watching.write(writer))
        await run.until(lambda: drawn(run).tier.known_ns == known_ns + MINUTE_NS)
    writer.close()
