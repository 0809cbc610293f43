"""Live, and back: the screen goes through what is recorded while recording continues."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fabmon.analysis.scene import Scene
from fabmon.fabric.time_wording import axis_label, utc
from fabmon.recording.reading.reader import Recording
from fabmon.recording.writing.recorder import Recorder, RecorderStatus
from fabmon.recording.writing.segments import Rotation, Segments
from fabmon.scenes.pipeline import finding_notes
from fabmon.scenes.recording_access import LiveRecording, RecordingAccess
from fabmon.tui.palette import Depth
from fabmon.tui.run_facts import RunFacts
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.text.header import header
from fabmon.tui.text.timeline import _label_times
from tests.tui.recordings import Watching, at, session
from tests.tui.running import Running, running
from tests.tui.worlds import HEALTHY

SMALL = Rotation(every_bytes=40_000, keep_bytes=100_000_000)


class Live:
    """A fabric that is watched and recorded; some seconds passed before the screen came."""

    def __init__(self, home: Path, before_s: int, rotation: Rotation) -> None:
        self.watching = Watching()
        self.recorder = Recorder(Segments(home / "live.fabrec", rotation), self.watching.session)
        self.first = self.recorder.status.path.name
        self.ticks = 0
        for _ in range(before_s):
            self._tick()

    def _tick(self) -> Scene:
        tick = self.watching.feed.step()
        scene = self.watching.judge(tick)
        self.recorder.accept(tick, scene.snapshot, finding_notes(scene))
        self.ticks += 1
        return scene

    async def pass_s(self, run: Running, seconds: int) -> None:
        """So many ticks come, and are recorded."""
        for _ in range(seconds):
            await run.send(self._tick())
        await run.until(lambda: self.recorder.status.ticks == self.ticks)

    @property
    def recording(self) -> LiveRecording:
        """What is recorded, with the same port rows."""
        return LiveRecording(session(self.watching.rows), self.recorder)


class Status(RecordingAccess):
    """The state of a recorder, and nothing to be read."""

    def __init__(self, status: RecorderStatus) -> None:
        super().__init__("disk full" if status.trouble else "")
        self._status = status

    @property
    def status(self) -> RecorderStatus:
        return self._status


@asynccontextmanager
async def watching(
    home: Path,
    before_s: int = 0,
    size: tuple[int, int] = (120, 40),
    rotation: Rotation | None = None,
) -> AsyncIterator[tuple[Running, Live]]:
    """A live screen, and what it watches."""
    live = Live(home, before_s, rotation or Rotation())
    try:
        async with running(size=size, recording=live.recording) as run:
            yield run, live
    finally:
        live.recorder.close()


def second_of(run: Running) -> int:
    """The tick that is shown."""
    scene = run.app.screen_state.scene
    return -1 if scene is None else round((scene.snapshot.time_ns - at(0)) / 1e9)


async def shows_second(run: Running, second: int) -> None:
    await run.until(lambda: second_of(run) == second and run.app.screen_state.cursor.is_settled)


async def test_it_goes_back_in_memory_and_in_the_file_while_recording_goes_on(
    tmp_path: Path,
) -> None:
    async with watching(tmp_path, before_s=30) as (run, live):
        await live.pass_s(run, 20)
        await run.press("t", *"-10s", "enter")
        await shows_second(run, 39)
        await run.heads("❚❚ PAUSED 14:07:19Z (\N{MINUS SIGN}00:10)")
        await run.press("t", *"14:06:55", "enter")
        await shows_second(run, 15)
        await run.heads("▲ 0 findings")
        await live.pass_s(run, 5)
        await run.heads("(\N{MINUS SIGN}00:39)")
        await run.heads("● REC")
        assert live.recorder.status.ticks == 55
        await run.press("`")
        await run.heads("● LIVE 14:07:34Z")
        assert second_of(run) == 54


async def test_from_the_file_into_memory_and_to_now_tick_by_tick(tmp_path: Path) -> None:
    async with watching(tmp_path, before_s=10) as (run, live):
        await live.pass_s(run, 5)
        await run.press("space")
        for second in range(13, 5, -1):
            await run.press("[")
            await shows_second(run, second)
        for second in range(7, 15):
            await run.press("]")
            await shows_second(run, second)
        await run.press("]")
        await run.heads("● LIVE")


async def test_it_plays_from_there_and_catches_up_with_now(tmp_path: Path) -> None:
    async with watching(tmp_path, before_s=20) as (run, live):
        await live.pass_s(run, 5)
        await run.press("t", *"-20s", "enter")
        await shows_second(run, 4)
        for _ in range(6):
            await run.press(">")
        await run.press("space")
        await run.heads("● LIVE")


async def test_what_is_written_anew_and_rotated_meanwhile_is_read(tmp_path: Path) -> None:
    async with watching(tmp_path, rotation=SMALL) as (run, live):
        await live.pass_s(run, 20)
        run.app.player.moves.kept.clear()
        await run.press("t", *"14:06:45", "enter")
        await shows_second(run, 5)
        await live.pass_s(run, 30)
        assert live.recorder.status.path.name != live.first
        run.app.player.moves.kept.clear()
        await run.press("t", *"14:07:15", "enter")
        await shows_second(run, 35)
        await run.heads("▲ 1 finding")


async def test_a_bookmark_is_kept_and_found_again(tmp_path: Path) -> None:
    async with watching(tmp_path) as (run, live):
        await live.pass_s(run, 10)
        await run.press("space")
        await run.shows("b bookmark")
        await run.press("[", "[", "b", *"odd here", "enter")
        await run.says("◆ odd here, at 14:06:47Z")
        await run.press("`")
        await live.pass_s(run, 5)
        await run.press("{")
        await shows_second(run, 7)
        await run.says("event 1 of 1: odd here")
        await run.shows("◆")
        await run.press("4")
        await run.shows("◆ odd here")


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (120, 40)])
async def test_it_is_unmistakable_where_one_is(tmp_path: Path, size: tuple[int, int]) -> None:
    async with watching(tmp_path, before_s=25, size=size) as (run, live):
        await live.pass_s(run, 30)
        await run.heads("● REC")
        await run.press("i", "t", *"-25s", "enter")
        await shows_second(run, 29)
        await run.press("o", "tab", "tab")
        if size == (80, 24):
            await run.looks_like(f"rewound-{size[0]}x{size[1]}")


async def test_where_nothing_is_recorded_it_says_so_and_goes_as_far_as_it_can(
    tmp_path: Path,
) -> None:
    live = Live(tmp_path, 0, Rotation())
    off = LiveRecording(session(live.watching.rows), "recording is turned off (recording.ring)")
    async with running(recording=off) as run:
        await live.pass_s(run, 10)
        assert "REC" not in run.lines[0]
        await run.press("t", *"-1h", "enter")
        await run.says("recording is turned off (recording.ring): no further back than 14:06:40Z")
        assert second_of(run) == 0
        assert "bookmark" not in run.lines[-1]
        await run.press("b")
        await run.says("nothing is recorded: a bookmark cannot be kept")
    live.recorder.close()


async def test_a_disk_that_is_full_is_in_the_header(tmp_path: Path) -> None:
    full = Status(RecorderStatus(tmp_path, trouble=f"{tmp_path}/a: No space left on device"))
    for size in ((60, 18), (120, 40)):
        async with running(size=size, recording=full) as run:
            await run.send(Watching().next())
            await run.heads("✖ REC disk full")
            await run.press("[")
            await run.says("disk full: no further back than 14:06:40Z")


@pytest.mark.parametrize(
    ("kept_s", "said"), [(0, "0 s"), (59.9, "59 s"), (754, "12 min"), (7300, "2 h")]
)
async def test_how_far_back_is_recorded_is_in_the_header(
    tmp_path: Path, kept_s: float, said: str
) -> None:
    recording = Status(RecorderStatus(tmp_path, kept_s=kept_s))
    async with running(size=(120, 40), recording=recording) as run:
        await run.send(Watching().next())
        await run.heads(f"● REC {said} ")


@pytest.mark.parametrize(
    ("width", "wanted"),
    [
        (80, "● REC 25 s 14/14 nodes ▲ 0 findings"),
        (76, "● REC  14/14 nodes  ▲ 0 findings"),
        (70, "● REC  14/14  ▲ 0 findings  ✖ 0 down"),
    ],
)
def test_counts_keep_their_words_longer_than_the_recording_its_width(
    width: int, wanted: str
) -> None:
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.recording = Status(RecorderStatus(Path("ring"), kept_s=25))
    screen_state.take(HEALTHY.scene(70))
    screen_state.show(HEALTHY.scene(45))
    text = header(screen_state.header_context(width)).text
    assert wanted in text
    assert len(text) <= width


def test_a_delay_and_the_time_stay_apart_however_narrow_the_header_is() -> None:
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.recording = Status(RecorderStatus(Path("ring"), kept_s=25))
    screen_state.take(HEALTHY.scene(70))
    screen_state.delay_s = 59.0
    for width in range(50, 120):
        text = header(screen_state.header_context(width)).text
        assert "DELAYED 59 s 1" in text, "14:07:50Z"


def test_a_header_that_is_too_narrow_leaves_whole_parts_out() -> None:
    screen_state = ScreenState(RunFacts("pod7", mark="SIMULATED"), Depth.NONE)
    screen_state.recording = Status(RecorderStatus(Path("ring"), kept_s=25))
    screen_state.take(HEALTHY.scene(70))
    whole = header(screen_state.header_context(200)).text.split()
    for width in range(20, 61):
        text = header(screen_state.header_context(width)).text
        assert len(text) <= width
        assert set(text.split()) <= set(whole)
        assert "14:07:50Z" in text or width < 32
    assert header(screen_state.header_context(40)).text.split()[-3:] == ["REC", "▲", "0"]


def test_the_span_of_the_timeline_stays_while_the_past_is_shown() -> None:
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.take(HEALTHY.scene(50))
    before = screen_state.cursor.live_s
    screen_state.freeze()
    screen_state.take(HEALTHY.scene(400))
    assert screen_state.cursor.live_s == before
    screen_state.follow()
    screen_state.take(HEALTHY.scene(401))
    assert screen_state.cursor.live_s > before


async def test_a_time_that_is_not_yet_is_refused_and_the_screen_stays(tmp_path: Path) -> None:
    async with watching(tmp_path, before_s=20) as (run, live):
        await live.pass_s(run, 3)
        await run.press("space")
        await live.pass_s(run, 2)
        await run.heads("❚❚ PAUSED 14:07:02Z")
        for text, meant in (("14:30", "14:30:00Z"), ("+1h", "15:07:02Z")):
            await run.press("t", *text, "enter")
            await run.shows(f"{meant} is in the future: the newest tick is of 2026-11-21 14:07:04Z")
            await run.press("escape")
            await run.heads("❚❚ PAUSED 14:07:02Z")
        await run.press("t", *"14:07:04", "enter")
        await run.heads("14:07:04Z")


async def test_fluctuation_of_all_that_is_recorded_so_far(tmp_path: Path) -> None:
    async with watching(tmp_path, before_s=20) as (run, live):
        await live.pass_s(run, 20)
        await run.press("6")
        await run.shows(" last minutes ")
        await run.press("r")
        await run.shows(" whole recording ", "14:06:4")
        await run.press("r")
        await run.shows(" last minutes ")


def test_labels_of_the_axis_differ() -> None:
    """From five minutes on they have no seconds: two of one minute would be the same."""
    for span_s in (60, 120, 299, 300, 600, 3600, 86_400):
        window = (at(0), at(0) + span_s * 10**9)
        labels = [axis_label(time_ns, span_s) for time_ns in _label_times(window, 200)]
        assert labels
        assert len(set(labels)) == len(labels)


async def test_a_time_and_now_that_arrive_together_lead_to_now(tmp_path: Path) -> None:
    async with watching(tmp_path, before_s=30) as (run, live):
        await live.pass_s(run, 25)
        await run.press_at_once("t", *"-20s", "enter", "`")
        await run.heads("● LIVE 14:07:34Z")
        await run.press_at_once("t", *"-50s", "enter", "`")
        await run.heads("● LIVE 14:07:34Z")
        await run.press_at_once("t", *"-20s", "enter")
        await shows_second(run, 34)


def files_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def test_a_cut_is_named_after_its_first_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    async with watching(tmp_path, before_s=5) as (run, live):
        await live.pass_s(run, 5)
        await run.press("x", "c")
        await run.says("saved fabmon-pod7-cut-")
        [path] = files_in(tmp_path / "here")
    with Recording(path) as made:
        begin, end = (f"{utc(each):%H%M%SZ}" for each in (made.start_ns, made.until_ns))
    assert path.name.endswith(f"T{begin}-{end}.fabrec")


async def test_a_mark_is_cleared_by_the_same_key_while_time_passes(tmp_path: Path) -> None:
    async with watching(tmp_path) as (run, live):
        await live.pass_s(run, 5)
        for key, name in (("i", "start"), ("o", "end")):
            await run.press(key)
            await run.says(f"{key} again clears it")
            await live.pass_s(run, 3)
            await run.press(key)
            await run.says(f"{name} of the range cleared")
        cursor = run.app.screen_state.cursor
        assert (cursor.mark_in_ns, cursor.mark_out_ns) == (None, None)


async def test_a_start_after_a_whole_range_begins_a_new_one(tmp_path: Path) -> None:
    async with watching(tmp_path) as (run, live):
        cursor = run.app.screen_state.cursor
        await live.pass_s(run, 3)
        await run.press("i")
        await live.pass_s(run, 3)
        await run.press("o")
        await run.says("marked 14:06:42Z to 14:06:45Z, 3 s")
        await live.pass_s(run, 3)
        await run.press("i")
        await run.says("start of the range marked at 14:06:48Z")
        assert cursor.range_ns is None
        await live.pass_s(run, 2)
        await run.press("o")
        await run.says("marked 14:06:48Z to 14:06:50Z, 2 s")
        await live.pass_s(run, 2)
        await run.press("o")
        await run.says("marked 14:06:48Z to 14:06:52Z, 4 s")


async def test_the_brackets_of_a_range_are_in_order_whichever_end_was_marked_first(
    tmp_path: Path,
) -> None:
    async with watching(tmp_path) as (run, live):
        await live.pass_s(run, 40)
        await run.press("i", "t", *"-20s", "enter")
        await shows_second(run, 19)
        await run.press("o", "`")
        await run.heads("● LIVE")
        strip = next(text for text in run.lines if "busiest links" in text and "[" in text)
        assert strip.index("[") < strip.index("]")
