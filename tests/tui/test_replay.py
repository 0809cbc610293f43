"""A recording on the screen: the same screen as live, and a cursor that goes anywhere in it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fabmon.analysis.scene import Scene
from fabmon.fabric.time_wording import time_of_day
from fabmon.fabric.wording import ABSENT, byte_count
from fabmon.recording.format.frames import FrameKind
from fabmon.recording.format.records import Note
from fabmon.recording.reading.reader import Recording
from fabmon.recording.writing.writer import Writer
from fabmon.scenes.recorded_past import RecordedPast
from fabmon.tui.screen_app import KeyHandled
from tests.tui.recordings import BEGAN_S, Watching, at, recording_of, replaying
from tests.tui.running import Running, running

SIZES = [(60, 18), (80, 24), (120, 40)]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Scene]]:
    path = tmp_path_factory.mktemp("replay") / "incident.fabrec"
    return path, Watching().record(path, 90)


def second_of(run: Running) -> int:
    """Where the cursor is, from the start of the recording."""
    shown = run.app.screen_state.shown
    return -1 if shown is None else round((shown.snapshot.time_ns - at(0)) / 1e9)


async def at_end(run: Running) -> None:
    await run.until(lambda: run.app.screen_state.cursor.at_end)


async def settled_at(run: Running, second: int) -> None:
    await run.until(lambda: second_of(run) == second and run.app.screen_state.cursor.is_settled)


@pytest.mark.parametrize("size", SIZES)
async def test_it_plays_to_the_end_and_stays_there(
    recording: tuple[Path, list[Scene]], size: tuple[int, int]
) -> None:
    path, scenes = recording
    async with replaying(path, size=size) as run:
        await at_end(run)
        shown = run.app.screen_state.shown
        assert shown is not None
        assert shown.snapshot.time_ns == scenes[-1].snapshot.time_ns
        assert shown.findings == scenes[-1].findings
        await run.heads("■ END")
        await run.until(lambda: run.app.screen_state.cursor.curve is not None)
        if size == (80, 24):
            await run.looks_like(f"replay-end-{size[0]}x{size[1]}")


async def test_what_a_filter_hides_of_closed_findings_and_events_is_counted(
    recording: tuple[Path, list[Scene]],
) -> None:
    async with replaying(recording[0], size=(100, 30)) as run:
        await at_end(run)
        await run.press("4")
        assert "ECMP collision" in run.text
        events = sum("leaf1 up3" in each for each in run.lines[4:])
        await run.press("slash", *"gpu003", "enter")
        await run.shows("Closed, latest first  1 finding does not match the filter")
        assert f"Events, latest first  {events - 1} events do not match the filter" in run.text
        assert "ECMP collision" not in run.text
        await run.press("escape", "slash", *"leaf1", "enter")
        assert "do not match" not in run.text
        assert "does not match" not in run.text
        assert "ECMP collision" in run.text


async def test_a_finding_ended_at_one_time_in_lists_events_and_analysis(
    recording: tuple[Path, list[Scene]],
) -> None:
    """That it had ended is known 15 s later; that is no second end."""
    path, scenes = recording
    async with replaying(path, size=(120, 40)) as run:
        await at_end(run)
        await run.press("4")
        (closed,) = (each for each in run.lines if each.startswith(" △ ECMP collision"))
        (event,) = (each for each in run.lines if "Ended: ECMP collision" in each)
        assert event.split()[0] == closed.split(" to ")[1].partition(",")[0]
    (ended,) = {each for scene in scenes for each in scene.events if each.text.startswith("close")}
    assert time_of_day(ended.time_ns) == event.split()[0]


@pytest.mark.parametrize("size", SIZES)
async def test_it_is_unmistakable_that_it_was(
    recording: tuple[Path, list[Scene]], size: tuple[int, int]
) -> None:
    async with replaying(recording[0], size=size, from_s=55, speed=0.5) as run:
        await run.heads("▶")
        await run.heads("14:07:3")
        assert "space pause" in run.text
        await run.press("space")
        await run.heads("❚❚")
        assert "space play" in run.text
        await run.press("t", *"14:07:12", "enter")
        await settled_at(run, 32)
        await run.until(lambda: run.app.screen_state.cursor.curve is not None)
        if size == (80, 24):
            await run.looks_like(f"replay-paused-{size[0]}x{size[1]}")


async def test_a_seek_shows_rates_findings_and_their_start_as_they_were(
    recording: tuple[Path, list[Scene]],
) -> None:
    path, scenes = recording
    async with replaying(path) as run:
        await at_end(run)
        for second in (40, 12, 70, 25, 0):
            await run.press("t", *f"14:0{6 + (40 + second) // 60}:{(40 + second) % 60:02d}")
            await run.press("enter")
            await settled_at(run, second)
            shown, was = run.app.screen_state.shown, scenes[second]
            assert shown is not None
            if second:
                assert shown.findings == was.findings
                assert shown.snapshot.heat.tolist()[:2] == was.snapshot.heat.tolist()[:2]


async def test_before_it_is_worked_through_findings_are_those_of_then(
    recording: tuple[Path, list[Scene]],
) -> None:
    path, scenes = recording
    async with replaying(path) as run:
        await at_end(run)
        past = run.app.player.past
        assert past is not None
        rough = await past.seek(at(40))
        assert rough is not None
        assert [f.key for f in rough.findings] == [f.key for f in scenes[40].findings]
        assert not past.is_settled


async def test_one_tick_at_a_time_there_and_back(recording: tuple[Path, list[Scene]]) -> None:
    async with replaying(recording[0], from_s=50, speed=0.5) as run:
        await run.until(lambda: run.app.screen_state.cursor.playing)
        await run.press("space")
        began = second_of(run)
        for number in range(1, 8):
            await run.press("[")
            await run.until(lambda n=number: second_of(run) == began - n)  # type: ignore[misc]
        for number in range(6, -4, -1):
            await run.press("]")
            await run.until(lambda n=number: second_of(run) == began - n)  # type: ignore[misc]
        await run.press("shift+tab", "left", "H")
        await run.until(lambda: second_of(run) == began + 3 - 11)


async def test_from_event_to_event(recording: tuple[Path, list[Scene]]) -> None:
    path, scenes = recording
    opened = next(
        n for n, scene in enumerate(scenes) if any("open ecmp" in e.text for e in scene.events)
    )
    assert opened > BEGAN_S
    async with replaying(path) as run:
        await at_end(run)
        await run.press("{")
        await run.until(lambda: second_of(run) < 89)
        while second_of(run) != opened:
            before = second_of(run)
            await run.press("{")
            await run.until(lambda b=before: second_of(run) < b)  # type: ignore[misc]
        await run.says("Opened: ECMP collision")
        recorded = run.app.screen_state.cursor.recorded
        assert recorded is not None
        number = recorded.marks_ns().index(at(opened)) + 1
        await run.says(f"event {number} of {len(recorded.marks_ns())}:")
        await run.press("}")
        await run.says("no later event")
        await settled_at(run, opened)


async def test_a_finding_leads_to_its_start(recording: tuple[Path, list[Scene]]) -> None:
    path, scenes = recording
    async with replaying(path, from_s=40, speed=0.5) as run:
        await run.until(lambda: run.app.screen_state.cursor.playing)
        await run.press("space", "4", "f")
        since = round((scenes[40].findings[0].since_ns - at(0)) / 1e9)
        await settled_at(run, since)
        await run.press("f")


async def test_speeds(recording: tuple[Path, list[Scene]]) -> None:
    async with replaying(recording[0], from_s=10, speed=1) as run:
        await run.until(lambda: run.app.screen_state.cursor.playing)
        for speed in ("×2", "×4", "×8", "×16", "×32", "×64", "×64"):  # noqa: RUF001
            await run.press(">")
            await run.until(
                lambda speed=speed: (  # type: ignore[misc]
                    f"REPLAY {speed}" in run.header or run.app.screen_state.cursor.at_end
                )
            )
        await at_end(run)
        for _ in range(9):
            await run.press("<")
        assert run.app.screen_state.cursor.speed == 0.5


async def test_what_nothing_happens_in_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "idle.fabrec"
    Watching('[topology]\nhosts = 4\nrails = 2\n[[fault]]\nkind = "node_lost"\nat = 50\nfor = 20\n'
             'where = "gpu002"\n').record(path, 90)  # fmt: skip
    async with replaying(path, speed=0.5) as run:
        await run.until(lambda: run.app.screen_state.cursor.playing)
        await run.press("S")
        await run.until(lambda: second_of(run) > 50)
        await run.heads("skipping idle")


async def test_while_it_skips_the_time_goes_by_on_the_screen(tmp_path: Path) -> None:
    path = tmp_path / "idle.fabrec"
    Watching("[topology]\nhosts = 4\nrails = 2\n").record(path, 600)
    async with replaying(path, speed=0.5) as run:
        await run.until(lambda: run.app.screen_state.cursor.playing)
        await run.press("S")
        seen: set[str] = set()

        def has_seen_more() -> bool:
            seen.add(run.lines[0])
            return len(seen) > 5 or run.app.screen_state.cursor.at_end

        await run.until(has_seen_more)
        assert len(seen) > 5


async def test_a_recording_is_not_changed(recording: tuple[Path, list[Scene]]) -> None:
    path, _ = recording
    before = path.read_bytes()
    async with replaying(path) as run:
        await at_end(run)
        await run.press("b")
        await run.says("a recording is not changed")
        await run.shows("faster")
        assert "bookmark" not in run.lines[-1]
        await run.press("colon", *"bookmark")
        await run.until(lambda: "bookmark" in run.text)
        assert "Bookmark" not in run.text
        await run.press("escape")
    assert path.read_bytes() == before


async def test_a_wrong_time_is_answered_with_a_right_one(
    recording: tuple[Path, list[Scene]],
) -> None:
    async with replaying(recording[0]) as run:
        await at_end(run)
        await run.press("t", *"soon", "enter")
        await run.shows("not a time: 14:03, 14:03:22, 2026-11-20 14:03, -10m, +1h or event 3")
        await run.press("escape")
        assert "not a time" not in run.text
        assert second_of(run) == 89
        await run.press("t", *"14:30", "enter")
        await run.shows("14:30:00Z is after the end of the recording: 2026-11-21 14:08:09Z")
        await run.press("escape")
        assert second_of(run) == 89
        await run.press("t", *"event 1", "enter")
        await run.until(lambda: second_of(run) < 89)


async def test_a_click_in_the_strip_goes_there(recording: tuple[Path, list[Scene]]) -> None:
    async with replaying(recording[0]) as run:
        await at_end(run)
        row = run.app.screen.query_one("#time").region.y + 1
        await run.click(40, row)
        await run.until(lambda: 20 <= second_of(run) <= 60)


async def test_what_is_marked_is_kept_for_cutting(recording: tuple[Path, list[Scene]]) -> None:
    async with replaying(recording[0]) as run:
        await at_end(run)
        await run.press("o")
        assert run.app.screen_state.cursor.mark_out_ns == at(89)
        await run.press("t", *"-30s", "enter")
        await run.until(lambda: second_of(run) == 59)
        await run.press("i")
        assert run.app.screen_state.cursor.range_ns == (at(59), at(89))
        await run.says("marked 14:07:39Z to 14:08:09Z, 30 s")


async def test_a_mark_is_taken_away_where_it_was_made(recording: tuple[Path, list[Scene]]) -> None:
    async with replaying(recording[0], from_s=30) as run:
        await run.heads("▶")
        await run.press("space", "i")
        await run.says("i again clears it")
        assert run.app.screen_state.cursor.mark_in_ns is not None
        await run.press("i")
        await run.says("start of the range cleared")
        assert run.app.screen_state.cursor.mark_in_ns is None


@pytest.fixture
def may_read(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Nothing is read from the recording before this is set."""
    allowed, seek = asyncio.Event(), RecordedPast.seek

    async def seek_later(self: RecordedPast, at_ns: int) -> Scene | None:
        await allowed.wait()
        return await seek(self, at_ns)

    monkeypatch.setattr(RecordedPast, "seek", seek_later)
    return allowed


async def test_freezing_what_is_not_read_yet_does_not_end_the_reading(
    recording: tuple[Path, list[Scene]], may_read: asyncio.Event
) -> None:
    async with replaying(recording[0]) as run:
        await run.press("space")
        may_read.set()
        await at_end(run)


async def test_until_it_is_read_it_says_so(recording: tuple[Path, list[Scene]]) -> None:
    async with replaying(recording[0], from_s=60) as run:
        await run.goes_to("overview")
        run.app.screen_state.shown = None
        run.app.repaint()
        assert "○ READING the recording" in run.header


async def test_the_nodes_of_a_recording_that_is_being_read_are_not_waited_for(
    recording: tuple[Path, list[Scene]], may_read: asyncio.Event
) -> None:
    async with replaying(recording[0]) as run:
        await run.press("3")
        await run.shows("reading the recording")
        assert "received" not in run.text
        assert "retry" not in run.lines[-1]
        may_read.set()
        await run.goes_to("overview")
        await run.press("3")
        await run.shows("10/10 up")
        assert "retry" not in run.lines[-1]


async def test_the_strip_zooms_and_comes_back(recording: tuple[Path, list[Scene]]) -> None:
    async with replaying(recording[0]) as run:
        await at_end(run)
        await run.shows(" 2 min ═")
        await run.press("+")
        await run.shows(" 1 min ═")
        await run.press("0")
        await run.shows(" 2 min ═")


async def test_the_strip_shows_no_more_than_all_of_a_replay(
    recording: tuple[Path, list[Scene]],
) -> None:
    """It could show 30 d, in which a recording of some minutes was one cell."""
    async with replaying(recording[0]) as run:
        await at_end(run)
        await run.shows(" 2 min ═")
        await run.press("-")
        await run.says("the timeline shows all of the recording")
        await run.shows(" 2 min ═")


async def test_a_drag_marks_no_time_after_the_end_of_the_recording(
    recording: tuple[Path, list[Scene]],
) -> None:
    """The timeline shows whole minutes, which is more time than a short recording has."""
    async with replaying(recording[0]) as run:
        await at_end(run)
        await run.shows(" 2 min ═")
        cursor = run.app.screen_state.cursor
        await run.drag((1, 2), (110, 2), on="#time")
        await run.says("marked ")
        assert cursor.recorded is not None
        whole = (cursor.recorded.start_ns, cursor.recorded.until_ns)
        assert cursor.range_ns == whole
        await run.drag((100, 2), (110, 2), on="#time")
        await run.says("nothing is recorded in that range")
        assert cursor.range_ns == whole


async def test_a_drag_marks_no_time_before_the_run(tmp_path: Path) -> None:
    watching = Watching()
    scenes = watching.record(tmp_path / "now.fabrec", 40)
    async with running(recording=recording_of(tmp_path / "now.fabrec")) as run:
        await run.send(*scenes)
        await run.press("-")
        await run.drag((1, 2), (119, 2), on="#time")
        await run.says("marked ")
        cursor = run.app.screen_state.cursor
        assert cursor.recorded is not None
        newest_ns = scenes[-1].snapshot.time_ns
        assert cursor.range_ns == (cursor.recorded.start_ns, newest_ns)


async def test_what_was_not_recorded_is_a_gap(tmp_path: Path) -> None:
    watching = Watching()
    writer = Writer.create(tmp_path / "a.fabrec", watching.session)
    for second in range(90):
        if 30 <= second < 60:
            watching.feed.step()
        else:
            watching.write(writer)
    writer.close()
    async with replaying(tmp_path / "a.fabrec") as run:
        await at_end(run)
        await run.until(lambda: run.app.screen_state.cursor.curve is not None)
        top = run.app.screen.query_one("#time").region.y

        def of_time() -> list[str]:
            below = run.lines[top + 1 :]
            return [each for each in below if each[3:].startswith(("busiest", "leaf"))]

        await run.until(lambda: all("·" * 20 in each for each in of_time()))
        assert len(of_time()) > 3
        await run.press("t", *"14:07:25", "enter")
        await run.until(lambda: second_of(run) == 29)


async def test_it_is_resized_while_it_plays(recording: tuple[Path, list[Scene]]) -> None:
    async with replaying(recording[0], speed=64) as run:
        for width, height in ((60, 18), (200, 60), (80, 24), (120, 40), (60, 18)):
            await run.pilot.resize_terminal(width, height)
            await run.settle()
            assert all(len(each) <= width for each in run.lines)
        await at_end(run)


async def test_several_files_are_one_timeline(tmp_path: Path) -> None:
    watching = Watching()
    for name in ("a", "b"):
        watching.record(tmp_path / f"{name}.fabrec", 40)
    async with replaying(tmp_path, from_s=50, speed=0.5) as run:
        await run.until(lambda: run.app.screen_state.cursor.playing)
        await run.press("space", "t", *"-30s", "enter")
        await run.until(lambda: 15 <= second_of(run) <= 25)
        await run.press("`")
        await run.until(lambda: second_of(run) == 79)


async def test_a_file_that_grows_is_followed(tmp_path: Path) -> None:
    watching = Watching()
    writer = Writer.create(tmp_path / "a.fabrec", watching.session)
    for _ in range(30):
        watching.write(writer)
    async with replaying(tmp_path / "a.fabrec") as run:
        await at_end(run)
        assert second_of(run) == 29
        await run.press("`")
        for _ in range(5):
            watching.write(writer)
        await run.until(lambda: second_of(run) == 34)
        await run.shows("END of replay waiting for more")
        writer.close()
        await run.until(lambda: "waiting for more" not in run.lines[0])
        await run.press("`")
        await run.until(lambda: not run.app.screen_state.cursor.playing)
        assert "■ END of replay 20" in run.lines[0]


async def test_after_the_end_of_a_complete_recording_nothing_is_waited_for(
    recording: tuple[Path, list[Scene]],
) -> None:
    async with replaying(recording[0], from_s=5, speed=0.5) as run:
        await run.press("`")
        await run.shows("END of replay")
        await run.until(lambda: not run.app.screen_state.cursor.playing)
        assert "waiting" not in run.text


@pytest.mark.parametrize("unless", [(), ("host_pcie_limit",)], ids=["now", "older version"])
async def test_what_was_found_then_is_kept_beside_what_is_found_today(
    tmp_path: Path, unless: tuple[str, ...]
) -> None:
    watching = Watching()
    writer = Writer.create(tmp_path / "a.fabrec", watching.session)
    scenes = [watching.write(writer) for _ in range(40)]
    recorded = {
        "cause": "incast", "severity": "warning", "subject": "gpu002/mlx5_0", "rows": [],
        "text": "many to one", "evidence": [], "advice": "", "confidence": 0.9, "since_ns": at(22),
        "unless": list(unless),
    }  # fmt: skip
    writer.note(
        Note(kind="finding", time_ns=at(22), seq=22, text="x", change="open", finding=recorded)
    )
    writer.close()
    assert scenes[-1].findings
    async with replaying(tmp_path / "a.fabrec", from_s=38, speed=None) as run:
        await at_end(run)
        await run.press("4")
        await run.shows("Recorded, but not found by this version")
        await run.shows("Incast")
        assert "Found by this version, but not recorded" not in run.text


async def test_a_recorded_cause_that_no_longer_exists_has_a_title(tmp_path: Path) -> None:
    watching = Watching()
    writer = Writer.create(tmp_path / "a.fabrec", watching.session)
    for _ in range(40):
        watching.write(writer)
    known = {
        "cause": "pause_victim", "severity": "warning", "subject": "leaf2", "rows": [],
        "text": "8 ports are paused", "evidence": [], "advice": "", "confidence": 0.6,
        "since_ns": at(22),
    }  # fmt: skip
    note = Note(kind="finding", time_ns=at(22), seq=22, text="x", change="open", finding=known)
    writer.note(note)
    writer.close()
    async with replaying(tmp_path / "a.fabrec", from_s=38, speed=None) as run:
        await at_end(run)
        await run.press("4")
        await run.shows("Recorded, but not found by this version", "Pause victim leaf2")


async def test_a_damaged_file_is_marked_in_the_header(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    Watching().record(path, 70)
    with Recording(path) as sound:
        blocks = [each for each in sound.entries() if each.header.kind == FrameKind.BLOCK]
    data = bytearray(path.read_bytes())
    data[blocks[0].offset + 100] ^= 1
    path.write_bytes(data)
    async with replaying(path, size=(80, 24)) as run:
        await run.heads(f"✖ DAMAGED {byte_count(blocks[0].end - blocks[0].offset)}")


async def test_a_file_of_which_no_tick_is_left_is_said_to_be_so(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    Watching().record(path, 60)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    async with replaying(path) as run:
        await run.says("no tick of the recording can be read")
        await run.heads("■ NO DATA")


async def test_keys_that_arrive_together_go_where_they_would_one_by_one(
    recording: tuple[Path, list[Scene]],
) -> None:
    async with replaying(recording[0]) as run:
        await at_end(run)
        await run.press_at_once("t", *"-40s", "enter")
        await run.until(lambda: second_of(run) == 49)
        await run.press_at_once("t", *"+10s", "enter")
        await run.until(lambda: second_of(run) == 59)
        await run.press_at_once("colon", *"matrix", "enter")
        await run.goes_to("matrix")
        await run.press_at_once("1", "slash", *"gpu1", "enter")
        await run.goes_to("overview")
        await run.shows("filter: gpu1")


async def test_a_key_right_after_the_one_that_closes_a_line_goes_to_the_view(
    recording: tuple[Path, list[Scene]],
) -> None:
    async with replaying(recording[0]) as run:
        await at_end(run)
        end_s = second_of(run)
        await run.press_at_once("t", *"-40s", "enter", "`")
        await run.until(lambda: run.app.screen_state.cursor.is_settled)
        assert second_of(run) == end_s
        for view, keys in {
            "findings": ("t", *"-40s", "escape", "4"),
            "matrix": ("t", *"-40s", "enter", "5"),
            "overview": ("slash", *"gpu1", "enter", "1"),
            "jobs": ("slash", *"gpu1", "escape", "7"),
            "nodes": ("colon", *"matrix", "enter", "3"),
            "switches": ("colon", *"matrix", "escape", "2"),
        }.items():
            await run.press_at_once(*keys)
            await run.goes_to(view)
        await run.press_at_once("t", *"-10s", "enter", "slash", *"gpu2", "enter")
        await run.shows("filter: gpu2")


async def test_a_key_whose_widget_is_gone_does_not_hold_the_next(
    recording: tuple[Path, list[Scene]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replaying(recording[0]) as run:
        await at_end(run)
        # As of a widget that is removed before it hands the message on.
        monkeypatch.setattr(KeyHandled, "bubble", False)
        await run.press_at_once("slash", "x", "escape", "4")
        await run.goes_to("findings")


async def test_a_time_can_be_typed_while_the_minutes_before_are_analysed(
    recording: tuple[Path, list[Scene]], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def endless(*_: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with replaying(recording[0]) as run:
        await at_end(run)
        await run.until(lambda: run.app.screen_state.cursor.recorded is not None)
        monkeypatch.setattr(RecordedPast, "look", endless)
        await run.press("t")
        await run.shows("go to")
        assert not begun.is_set()


async def test_what_is_stopped_right_at_its_start_is_analysed_all_the_same(
    recording: tuple[Path, list[Scene]],
) -> None:
    """Else it says for ever that it is being read."""
    async with replaying(recording[0], from_s=40, speed=1.0) as run:
        await run.until(lambda: run.app.screen_state.scene is not None)
        await run.press("space")
        await run.until(lambda: run.app.screen_state.cursor.is_settled)
        assert "reading …" not in run.lines[0]
        assert not run.app.screen_state.cursor.playing


async def test_what_is_shown_while_the_minutes_before_are_read_is_of_this_tick_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collision ended at 47 s; that it had, the recorder noted at 62 s."""

    async def endless(*_: object) -> None:
        await asyncio.Event().wait()

    path = tmp_path / "collision.fabrec"
    Watching().record(path, 70)
    async with replaying(path) as run:
        await at_end(run)
        assert "max of 10 s" in run.text
        monkeypatch.setattr(RecordedPast, "settle", endless)
        await run.press("t", *"14:07:20", "enter")
        await run.heads("reading …")
        assert "▲ 1 finding" in run.lines[0]
        assert "this tick" in run.text
        assert "max of" not in run.text
        await run.press("t", *"14:07:35", "enter")
        await run.heads("14:07:35Z")
        assert "△ 1 finding" in run.lines[0]


async def test_pages_have_no_absent_values_while_these_are_read(
    recording: tuple[Path, list[Scene]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def endless(*_: object) -> None:
        await asyncio.Event().wait()

    async with replaying(recording[0]) as run:
        await at_end(run)
        monkeypatch.setattr(RecordedPast, "settle", endless)
        await run.press("t", *"14:07:10", "enter")
        await run.heads("reading …")
        await run.press("3", "enter")
        assert ABSENT not in run.text
        assert "absent" not in run.text
        await run.press("escape", "4", "enter")
        assert ABSENT not in run.text
