"""`x`: what is on the screen, and what was recorded, in files."""

from __future__ import annotations

import asyncio
import csv
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fabmon.fabric.time_wording import utc
from fabmon.recording.reading.reader import Recording
from fabmon.scenes.recording_access import RecordingAccess, RunRecording
from tests.requirements import need_path
from tests.tui.recordings import Watching, replaying, session
from tests.tui.running import Running, running
from tests.tui.worlds import troubled
from tests.unit.recording.builders import quiet_ticks, write


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def recorded(*paths: Path) -> RunRecording:
    """Recordings that can be cut, and are not read otherwise."""
    return RunRecording(session(), lambda: paths, None)


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def said(run: Running) -> str:
    """The line that says where it is, or why not; it may take a thread a while."""
    until_s = time.monotonic() + 240
    while time.monotonic() < until_s:
        await run.settle()
        await asyncio.sleep(0.01)
        for notification in run.app._notifications:
            if "saved" in notification.message:
                return notification.message
    raise AssertionError(run.text)


def only(directory: Path) -> Path:
    [path] = directory.iterdir()
    return path


async def test_the_menu_says_what_can_be_saved(here: Path) -> None:
    async with running(troubled(), size=(80, 24)) as run:
        await run.press("x")
        for word in (f"/{here.name}", "picture", "table", "recording", "esc"):
            assert word in run.text
        await run.press("escape")
        assert "Save into" not in run.text
    assert names_in(here) == []


async def test_a_picture_of_the_screen_without_the_menu(here: Path) -> None:
    async with running(troubled()) as run:
        await run.press("x", "p")
        assert "saved fabmon-pod7-overview-" in await said(run)
    path = only(here)
    assert re.fullmatch(r"fabmon-pod7-overview-\d{8}T\d{6}Z\.svg", path.name)
    svg = path.read_text()
    assert svg.startswith("<svg")
    assert "gpu001" in svg
    assert "Save&#160;into" not in svg
    assert "@font-face" not in svg


async def test_a_table_of_what_the_filter_leaves(here: Path) -> None:
    async with running(troubled(), recording=recorded()) as run:
        state = run.app.screen_state
        state.choices = state.choices.with_filter("gpu003")
        await run.press("x", "t")
        assert "saved fabmon-pod7-ports-" in await said(run)
        snapshot = run.app.screen_state.scene.snapshot if run.app.screen_state.scene else None
    assert snapshot is not None
    with only(here).open(newline="") as file:
        rows = list(csv.DictReader(file))
    ports = {port.name: port.row for port in snapshot.fabric.node("gpu003").ports}
    assert [row["port"] for row in rows] == list(ports)
    for row in rows:
        value = float(snapshot.column("tx_bps")[ports[row["port"]]])
        assert row["tx_bps"] == ("" if value != value else str(float(f"{value:.6g}")))


async def test_a_cut_of_what_was_recorded(here: Path) -> None:
    inside = here / "recorded"
    inside.mkdir()
    world = troubled()
    write(inside / "a.fabrec", quiet_ticks(30))
    async with running(world, recording=recorded(inside)) as run:
        assert run.app.screen_state.scene is not None
        at_ns = run.app.screen_state.scene.snapshot.time_ns
        with Recording(inside / "a.fabrec") as recording:
            is_within = recording.start_ns <= at_ns
        await run.press("x", "c")
        message = await said(run)
    assert is_within
    name = re.search(r"fabmon-pod7-cut-\S+\.fabrec", message)
    assert name is not None, message
    with Recording(here / name[0]) as cut:
        assert len(cut.hosts) == 7
        assert cut.is_closed


async def test_the_name_of_a_cut_has_the_times_of_what_is_in_it(here: Path) -> None:
    """The timeline of a replay may end after the recording."""
    inside = here / "recorded"
    inside.mkdir()
    Watching().record(inside / "a.fabrec", 90)
    async with replaying(inside / "a.fabrec") as run:
        state = run.app.screen_state
        await run.until(lambda: state.cursor.curve is not None)
        window = state.timeline_window()
        assert window is not None
        assert state.cursor.recorded is not None
        assert window[1] > state.cursor.recorded.until_ns
        await run.press("space", "x", "c")
        message = await said(run)
    name = re.search(r"fabmon-\S+-cut-\S+\.fabrec", message)
    assert name is not None, message
    with Recording(here / name[0]) as cut:
        times = [utc(each).strftime("%H%M%SZ") for each in (cut.start_ns, cut.until_ns)]
    assert name[0].endswith(f"T{'-'.join(times)}.fabrec")


async def test_who_quits_does_not_wait_for_a_cut(here: Path) -> None:
    began, ended = threading.Event(), threading.Event()

    class Endless(RecordingAccess):
        def cut(
            self, path: Path, from_ns: int, until_ns: int, is_wanted: Callable[[], bool]
        ) -> None:
            began.set()
            while is_wanted():
                time.sleep(0.01)
            ended.set()

    async with running(troubled(), recording=Endless()) as run:
        await run.press("x", "c")
        assert await asyncio.to_thread(began.wait, 60)
        await run.press("x", "p")
        assert (await said(run)).startswith("saved fabmon-")
        assert [name.rpartition(".")[2] for name in names_in(here)] == ["svg"]
        run.app.clear_notifications()
        await run.press("x", "c")
        assert "the file before is still being saved" in await said(run)
        await run.press("q")
        assert "the same key again quits without it" in await said(run)
        assert not ended.is_set()
        await run.press("q")
        assert await asyncio.to_thread(ended.wait, 60)


def test_a_cut_that_nobody_waits_for_leaves_no_file(here: Path) -> None:
    write(here / "a.fabrec", quiet_ticks(30))
    cut = recorded(here / "a.fabrec").cut
    wanted = iter([True, True, False])
    cut(here / "b.fabrec", 0, 1 << 62, lambda: next(wanted))
    assert names_in(here) == ["a.fabrec"]


def test_what_does_not_fit_on_the_disk_leaves_no_file(here: Path) -> None:
    script = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from fabmon.private_files import write_new\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "write_new(Path('a.csv'), b'x' * 100_000)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "File too large" in done.stderr
    assert names_in(here) == []


async def test_where_nothing_is_recorded_it_says_so(here: Path) -> None:
    async with running(troubled(), recording=recorded()) as run:
        await run.press("x", "c")
        assert await said(run) == "not saved: nothing is recorded: there is nothing to cut out"
    assert names_in(here) == []


async def test_files_that_are_there_are_kept(here: Path) -> None:
    async with running(troubled()) as run:
        for _ in range(2):
            run.app.clear_notifications()
            await run.press("x", "p")
            await said(run)
    names = names_in(here)
    assert len(names) == 2
    assert names[0].replace("-2.svg", ".svg") == names[1].replace("-2.svg", ".svg")


async def test_a_directory_that_takes_no_file_is_reported(here: Path) -> None:
    need_path("/proc/sys/kernel", "mount /proc")
    closed = Path("/proc/sys/kernel")  # nobody makes files there, not even root
    async with running(troubled()) as run:
        os.chdir(closed)
        await run.press("x", "p")
        message = await said(run)
    assert re.fullmatch(r"not saved: fabmon-pod7-overview-\S+: [A-Z][a-z -]+", message)


def test_a_title_may_hold_anything(here: Path) -> None:
    from fabmon.tui.saving import _unused

    assert str(_unused("../../etc/pass wd;\x1b[2J", "ports", "t", "csv")) == (
        "fabmon-etc-pass-wd-2J-ports-t.csv"
    )


@pytest.mark.parametrize("again", ["", "-2"])
def test_a_cut_of_a_cut_has_one_time_in_its_name(here: Path, again: str) -> None:
    from fabmon.tui.saving import _unused

    title = f"replay of fabmon-demo-cut-20261126T210703Z-210803Z{again}.fabrec"
    assert str(_unused(title, "cut", "20261126T210730Z-210740Z", "fabrec")) == (
        "fabmon-replay-of-fabmon-demo-cut-20261126T210730Z-210740Z.fabrec"
    )
