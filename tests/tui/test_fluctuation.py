"""The screen of fluctuation: drawn when it has been looked at, never in the way."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import pytest

from fabmon.fabric.model import Host
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.writing.writer import Writer
from tests.builders import SECOND_NS, frame, hello, port, tick, up
from tests.tui.recordings import replaying
from tests.tui.running import Running, running
from tests.tui.scenes import World
from tests.tui.worlds import COLLISION, HEALTHY

BEGIN_NS = int(datetime(2026, 11, 20, 22, 30, tzinfo=UTC).timestamp()) * SECOND_NS


async def _looked(run: Running, text: str = "Z to ") -> None:
    """Wait until what was found is drawn."""
    async with asyncio.timeout(240):
        while text not in run.text:
            await asyncio.sleep(0.01)
            await run.settle()


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 40)], ids=str)
async def test_the_last_minutes(size: tuple[int, int]) -> None:
    async with running(COLLISION, size=size) as run:
        await run.press("6")
        await _looked(run)
        assert all(len(line) <= size[0] for line in run.lines)
        if size != (60, 18):
            await run.looks_like(f"fluctuation-{size[0]}x{size[1]}")


async def test_the_marks_of_the_table_are_explained_above_it() -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        await run.press("6")
        await _looked(run)
        assert "━ p5 to p95  █ median of samples of 1 s   CoV deviation/mean" in run.lines[2]


async def test_a_filter_chooses_what_is_looked_at() -> None:
    async with running(HEALTHY, size=(120, 40)) as run:
        await run.press("6")
        await _looked(run)
        assert "gpu001 " in run.text
        await run.press("slash", *"gpu002", "enter")
        async with asyncio.timeout(240):
            while "gpu001 " in run.text:
                await asyncio.sleep(0.01)
                await run.settle()
        assert "gpu002 " in run.text
        assert "Of the filter: 8 of 160 ports; esc clears it" in run.text
        assert "fluctuation ── filter: gpu002" in run.lines[1]


async def test_a_link_is_opened_from_its_line() -> None:
    async with running(HEALTHY, size=(120, 40)) as run:
        await run.press("6")
        await _looked(run)
        await run.press("enter")
        assert run.view == "fluctuation", "a job is no link: there is nothing to open"
        await run.press("G", "enter")
        assert run.view == "port"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours over midnight, a sample every 30 s: 80 Gb/s until 23, 60 until 0, then 40."""
    path = tmp_path_factory.mktemp("steady") / "night.fabrec"
    hosts = tuple(Host(name=f"gpu{number:03}", speeds=(("*", 100e9),)) for number in (1, 2))
    ports = [port("eth0", "a-0"), port("eth1", "a-1")]
    said = {host.name: hello(*ports, interval_s=30.0) for host in hosts}
    writer = Writer.create(path, SessionRecord(started_ns=BEGIN_NS, interval_s=30.0, hosts=hosts))
    rng = np.random.default_rng(1)
    sent = 0.0
    for second in range(0, 7200, 30):
        level = 80e9 if second < 1800 else 60e9 if second < 5400 else 40e9
        sent += level * (1 + 0.01 * rng.standard_normal()) * 30 / 8
        frames = {name: frame(second, *([1, int(sent), 0, 0] * 2)) for name in said}
        made = tick(second, frames, *((said, up(*said)) if second == 0 else ()))
        writer.write(msgspec.structs.replace(made, time_ns=BEGIN_NS + second * SECOND_NS))
    writer.close()
    return path


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 40)], ids=str)
async def test_a_replay_tells_of_all_that_is_recorded(
    recording: Path, size: tuple[int, int]
) -> None:
    async with replaying(recording, size=size, speed=None) as run:
        await run.until(lambda: run.app.screen_state.cursor.at_end)
        await run.press("6")
        await run.shows("whole recording", "by hour")
        assert all(len(line) <= size[0] for line in run.lines)
        if size == (120, 40):
            await run.looks_like(f"fluctuation-night-{size[0]}x{size[1]}")


async def test_the_marked_part_and_back(recording: Path) -> None:
    async with replaying(recording, size=(120, 40), speed=None) as run:
        await run.until(lambda: run.app.screen_state.cursor.at_end)
        await run.press("t", *"2026-11-20 23:00:00", "enter")
        await run.until(lambda: "23:00:00Z" in run.lines[0])
        await run.press("i", "t", *"2026-11-20 23:30:00", "enter")
        await run.until(lambda: "23:30:00Z" in run.lines[0])
        await run.press("o", "6")
        await run.shows(" marked ", "22:59:30Z to 23:30:00Z")
        await run.press("r")
        await run.shows(" whole recording ", "11-20 22:30Z to 11-21 00:29Z")
        await run.press("r")
        await run.shows(" last minutes ")
        await run.press("r")
        await run.shows(" marked ")


async def test_the_strip_is_of_the_chosen_line(recording: Path) -> None:
    async with replaying(recording, size=(120, 40), speed=None) as run:
        await run.until(lambda: run.app.screen_state.cursor.at_end)
        await run.press("6")
        await run.shows("all rails by hour, UTC, means of 30 s", "median of samples of 30 s")
        await run.press("j")
        await run.shows(" r0 by hour, UTC")
        strip = next(
            run.lines[number + 2] for number, text in enumerate(run.lines) if "by hour" in text
        )
        cells = [strip[1 + 4 * hour : 3 + 4 * hour] for hour in range(24)]
        assert cells[1:22] == ["··"] * 21
        assert cells[22] == "██"
        assert "·" not in cells[23] + cells[0]
        assert cells[23] != cells[0] != "██"


async def test_a_filter_chooses_what_is_read(recording: Path) -> None:
    async with replaying(recording, size=(120, 40), speed=None) as run:
        await run.until(lambda: run.app.screen_state.cursor.at_end)
        await run.press("6")
        await run.shows("whole recording", "gpu001 r", "gpu002 r")
        await run.press("slash", *"gpu002", "enter")
        await run.until(lambda: "gpu001 r" not in run.text and "gpu002 r" in run.text)


@pytest.fixture
def copy(recording: Path, tmp_path: Path) -> Path:
    """One to be removed."""
    path = tmp_path / "a.fabrec"
    path.write_bytes(recording.read_bytes())
    return path


async def test_a_recording_that_is_gone_is_reported(copy: Path) -> None:
    async with replaying(copy, size=(120, 40), speed=None) as run:
        await run.until(lambda: run.app.screen_state.cursor.at_end)
        await asyncio.to_thread(copy.unlink)
        await run.press("6")
        await run.shows("the recording cannot be read: ", "No such file")


async def test_keys_are_answered_while_it_is_read(recording: Path) -> None:
    """However long a study takes: another view comes at once, and leaving ends it."""
    async with replaying(recording, size=(120, 40), speed=None) as run:
        await run.until(lambda: run.app.screen_state.cursor.at_end)
        reader = run.app.recording.reader
        assert reader is not None
        going = asyncio.create_task(reader.study(0, 1 << 62, None, lambda _: None))
        await run.press("6", "1")
        assert run.view == "overview"
        going.cancel()


async def test_a_fabric_of_which_nothing_is_known_yet() -> None:
    world = World(connecting=tuple(node.name for node in HEALTHY.fabric.nodes))
    async with running(world, seq=1, size=(80, 24)) as run:
        await run.press("6")
        await _looked(run, "No communication seen")
