"""The recorder: full and slow disks, and that it never delays the feed."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.recording.format.errors import InUse, NotARecording
from fabmon.recording.format.records import Note
from fabmon.recording.reading.reader import Recording
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.recorder import Recorder
from fabmon.recording.writing.segments import Rotation, Segments
from fabmon.recording.writing.writer import Writer
from fabmon.session.config import RecordingConfig
from fabmon.session.errors import UsageError
from fabmon.session.recorder_setup import describe_status, recorder_for, ring_recorder
from tests.builders import SECOND_NS, START_NS, LeafSpine
from tests.unit.recording.builders import quiet_ticks, record, session, ticks_in, wait_for


def test_what_is_accepted_is_recorded(tmp_path: Path) -> None:
    ticks = quiet_ticks(30)
    status = record(tmp_path / "a.fabrec", ticks).close()
    assert (status.ticks, status.lost_ticks, status.trouble) == (30, 0, "")
    assert describe_status(status).endswith(f": {tmp_path / 'a.fabrec'}")
    assert ticks_in(tmp_path / "a.fabrec") == ticks


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Make writes fail after they wrote a part, as with a quota or a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_logged_once_and_recording_continues_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ticks = quiet_ticks(80)
    path = tmp_path / "a.fabrec"
    recorder = Recorder(Segments(path, Rotation()), session(LeafSpine()))
    with no_file_larger_than(20_000):
        for tick in ticks[:60]:
            recorder.accept(tick)
        wait_for(lambda: recorder.status.ticks == 60)
        assert "File too large" in recorder.status.trouble
        kept = ticks_in(path)
        assert kept == ticks[: len(kept)]
        assert 5 < len(kept) < 60
    for tick in ticks[60:]:
        recorder.accept(tick)
    status = recorder.close()
    assert not status.trouble
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "not recording",
        "recording continues",
    ]
    assert ticks_in(path) == ticks


@pytest.mark.parametrize(("count", "size"), [(60, 20_000), (700, 4_000)])
@pytest.mark.parametrize("has_room_at_the_end", [False, True])
def test_ticks_that_are_not_in_the_file_are_counted_as_lost(
    tmp_path: Path, count: int, size: int, has_room_at_the_end: bool
) -> None:
    path = tmp_path / "a.fabrec"
    recorder = Recorder(Segments(path, Rotation()), session(LeafSpine()))
    with no_file_larger_than(size):
        for tick in quiet_ticks(count):
            recorder.accept(tick)
            wait_for(lambda: not recorder.waiting)
        if not has_room_at_the_end:
            recorder.close()
    status = recorder.status if not has_room_at_the_end else recorder.close()
    assert (status.ticks, status.lost_ticks) == (len(ticks_in(path)), count - status.ticks)
    assert bool(status.lost_ticks) == (count == 700 or not has_room_at_the_end)
    assert status.ticks > 0


def test_a_disk_that_is_full_from_the_start_leaves_no_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.fabrec"
    with no_file_larger_than(0), pytest.raises(OSError, match="File too large"):
        Recorder(Segments(path, Rotation()), session(LeafSpine()))
    assert not path.exists()
    path.touch()
    record(path, quiet_ticks(5)).close()
    assert ticks_in(path) == quiet_ticks(5)


def test_unreadable_files_of_a_directory_are_reported_as_losses(tmp_path: Path) -> None:
    record(tmp_path / "a.fabrec", quiet_ticks(5)).close()
    (tmp_path / "b.fabrec").touch()
    (tmp_path / "c.fabrec").write_text("years of work")
    with Timeline([tmp_path]) as timeline:
        assert list(timeline.ticks()) == quiet_ticks(5)
        lost = [(path.name, loss.end, loss.text) for path, loss in timeline.losses]
        assert lost == [
            ("b.fabrec", 0, "not a fabmon recording: the file is empty"),
            ("c.fabrec", 13, "not a fabmon recording"),
        ]
        (tmp_path / "b.fabrec").unlink()
        assert [path.name for path, _ in timeline.losses] == ["b.fabrec", "c.fabrec"]
        timeline.refresh()
        assert [path.name for path, _ in timeline.losses] == ["c.fabrec"]
    (tmp_path / "a.fabrec").unlink()
    with pytest.raises(NotARecording, match=r"c\.fabrec: not a fabmon recording"):
        Timeline([tmp_path])
    with pytest.raises(NotARecording):
        Timeline([tmp_path / "c.fabrec"])


def test_directory_entries_that_are_no_files_are_reported_as_losses(tmp_path: Path) -> None:
    record(tmp_path / "a.fabrec", quiet_ticks(5)).close()
    (tmp_path / "b.fabrec").mkdir()
    (tmp_path / "c.fabrec").symlink_to("gone")
    os.mkfifo(tmp_path / "d.fabrec")
    no_file = "not a regular file: save the recording to a file"
    with Timeline([tmp_path]) as timeline:
        assert list(timeline.ticks()) == quiet_ticks(5)
        assert {path.name: loss.text for path, loss in timeline.losses} == {
            "b.fabrec": no_file, "c.fabrec": "No such file or directory", "d.fabrec": no_file
        }  # fmt: skip
    with pytest.raises(NotARecording, match=r"d\.fabrec: not a regular file"):
        Timeline([tmp_path / "d.fabrec"])
    (tmp_path / "a.fabrec").unlink()
    with pytest.raises(NotARecording, match=r"b\.fabrec: not a regular file"):
        Timeline([tmp_path])


def test_a_large_foreign_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    with (tmp_path / "disk.img").open("wb") as image:
        image.truncate(1 << 42)
    with pytest.raises(NotARecording, match=r"disk\.img: not a fabmon recording"):
        Timeline([tmp_path / "disk.img"])


def test_a_foreign_file_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("years of work")
    with pytest.raises(NotARecording, match="not a fabmon recording"):
        Recorder(Segments(path, Rotation()), session(LeafSpine()))
    assert path.read_text() == "years of work"


def test_a_file_in_use_by_another_recorder_is_not_changed(tmp_path: Path) -> None:
    ticks = quiet_ticks(30)
    path = tmp_path / "a.fabrec"
    recorder = record(path, ticks[:10])
    with pytest.raises(InUse, match="another fabmon is recording to it"):
        Recorder(Segments(path, Rotation()), session(LeafSpine()))
    for tick in ticks[10:]:
        recorder.accept(tick)
    assert not recorder.close().trouble
    assert ticks_in(path) == ticks


def test_a_path_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Recorder(Segments(tmp_path / "file" / "a.fabrec", Rotation()), session(LeafSpine()))


def test_a_disk_that_hangs_does_not_delay_the_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = quiet_ticks(100)
    recorder = record(tmp_path / "a.fabrec", ticks[:2])
    with hanging_disk(monkeypatch) as answers:
        for tick in ticks[2:]:
            recorder.accept(tick)
        assert "too slow" in recorder.status.trouble
        lost = recorder.status.lost_ticks
        assert lost
        answers.set()
        status = recorder.close()
    assert status.lost_ticks == lost
    assert len(ticks_in(tmp_path / "a.fabrec")) == 100 - lost


@contextmanager
def hanging_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Writes wait until the event is set."""
    answers = threading.Event()
    real = os.pwritev

    def slow(fd: int, data: list[bytes], at: int) -> int:
        answers.wait()
        return real(fd, data, at)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", slow)
        yield answers


def test_a_disk_that_does_not_answer_is_said_before_ticks_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was after 60 ticks: a minute, or an hour."""
    monkeypatch.setattr("fabmon.recording.writing.recorder._ANSWER_S", 0.05)
    ticks = quiet_ticks(10)
    recorder = record(tmp_path / "a.fabrec", ticks[:2])
    with hanging_disk(monkeypatch) as answers:
        recorder.accept(ticks[2])
        wait_for(lambda: not recorder.waiting)
        time.sleep(0.06)
        for tick in ticks[3:]:
            recorder.accept(tick)
        status = recorder.status
        assert status.trouble == "the disk does not answer: ticks wait in memory, at most 60"
        assert not status.lost_ticks
        answers.set()
        wait_for(lambda: not recorder.waiting and not recorder.status.trouble)
    assert recorder.close().ticks == 10
    assert ticks_in(tmp_path / "a.fabrec") == ticks


def test_ticks_that_wait_at_the_end_are_lost_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`recorded 2 ticks` was all that was said of 6."""
    monkeypatch.setattr("fabmon.recording.writing.recorder._CLOSE_S", 0.1)
    ticks = quiet_ticks(6)
    recorder = record(tmp_path / "a.fabrec", ticks[:2])
    with hanging_disk(monkeypatch) as answers:
        for tick in ticks[2:]:
            recorder.accept(tick)
        status = recorder.close()
        answers.set()
    assert (status.ticks, status.lost_ticks) == (2, 4)
    assert status.trouble == "the disk does not answer: the last ticks may be missing"


@pytest.mark.parametrize("hangs", ["note", "close"])
def test_what_waits_at_the_end_and_is_no_tick_is_not_counted_as_one(
    hangs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a file was -1 lost ticks, a bookmark one."""
    monkeypatch.setattr("fabmon.recording.writing.recorder._CLOSE_S", 0.1)
    answers = threading.Event()
    monkeypatch.setattr(Writer, hangs, lambda *_: answers.wait())
    recorder = record(tmp_path / "a.fabrec", quiet_ticks(4))
    recorder.note(Note(kind="bookmark", time_ns=START_NS, seq=3, text="here"))
    status = recorder.close()
    answers.set()
    assert (status.ticks, status.lost_ticks) == (4, 0)
    assert status.trouble == "the disk does not answer: the last ticks may be missing"


def test_a_file_system_that_does_not_answer_keeps_no_run_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was waited for without end and without a word."""
    answers, opened = threading.Event(), os.open

    def slow(path: str | Path, *arguments: int, **rest: int) -> int:
        if str(path).endswith(".fabrec"):
            answers.wait(20)
        return opened(path, *arguments, **rest)

    monkeypatch.setattr("fabmon.session.recorder_setup.START_S", 0.1)
    monkeypatch.setattr(os, "open", slow)
    no_answer = "its file system does not answer"
    with pytest.raises(UsageError, match=f"a.fabrec: {no_answer}"):
        recorder_for(tmp_path / "a.fabrec", [], 1.0, "")
    config = RecordingConfig(directory=str(tmp_path / "rings"))
    why = ring_recorder(config, [], 1.0, "")
    answers.set()
    assert isinstance(why, str)
    assert why.startswith(f"not recording: {tmp_path}/rings")
    assert why.endswith(no_answer)


def test_ticks_of_many_nodes_wait_in_smaller_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 1,024 nodes 60 ticks that wait for the disk would take 200 MB."""
    ticks = quiet_ticks(40)
    recorder = record(tmp_path / "a.fabrec", ticks[:1])
    with hanging_disk(monkeypatch) as answers:
        for tick in ticks[1:]:
            frames = tuple((f"other{n}", tick.frames[0][1]) for n in range(1000))
            recorder.accept(msgspec.structs.replace(tick, frames=frames))
        lost = recorder.status.lost_ticks
        answers.set()
        wait_for(lambda: not recorder.waiting)
    assert 15 <= len(ticks) - 1 - lost <= 18
    assert recorder.close().lost_ticks == lost


def test_events_of_a_lost_tick_are_recorded_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hello that arrives while the disk hangs is recorded when the disk answers again."""
    ticks = quiet_ticks(100)
    ours = dict(ticks[0].hellos)["gpu001"]

    def without(tick: Tick) -> Tick:
        others = tuple(each for each in tick.hellos if each[0] != "gpu001")
        return msgspec.structs.replace(tick, hellos=others)

    recorder = record(tmp_path / "a.fabrec", [without(ticks[0]), *ticks[1:2]])
    with hanging_disk(monkeypatch) as answers:
        late = msgspec.structs.replace(ticks[90], hellos=(("gpu001", ours),))
        for tick in [*ticks[2:90], late]:
            recorder.accept(tick)
        assert recorder.status.lost_ticks
        answers.set()
        wait_for(lambda: not recorder.waiting)
    for tick in ticks[91:]:
        recorder.accept(tick)
    recorder.close()
    got = {tick.seq: tick for tick in ticks_in(tmp_path / "a.fabrec")}
    assert 90 not in got
    assert got[91].hellos == (("gpu001", ours),)
    assert [dict(got[seq].frames)["gpu001"] for seq in range(91, 100)] == [
        dict(tick.frames)["gpu001"] for tick in ticks[91:]
    ]


def test_ticks_of_a_clock_that_no_recording_holds_are_lost_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ticks before 1970 were recorded, and could not be read; after 2262 the recording ended."""
    ticks = quiet_ticks(40)
    moved = [
        msgspec.structs.replace(tick, time_ns=tick.time_ns + by_ns)
        for by_ns, part in ((-START_NS - 10**18, ticks[5:8]), (2**63, ticks[8:10]))
        for tick in part
    ]
    ours = dict(ticks[0].hellos)["gpu001"]
    moved[-1] = msgspec.structs.replace(moved[-1], hellos=(("gpu001", ours),))
    status = record(tmp_path / "a.fabrec", [*ticks[:5], *moved, *ticks[10:]]).close()
    assert (status.ticks, status.lost_ticks, status.trouble) == (35, 5, "")
    assert caplog.messages[0] == (
        "not recording: the clock of this machine is not between 1970 and 2262: set it"
    )
    read = ticks_in(tmp_path / "a.fabrec")
    assert [tick.seq for tick in read] == [*range(5), *range(10, 40)]
    assert read[5].hellos == (("gpu001", ours),)


@pytest.mark.parametrize("time_ns", [-1, 2**63])
def test_no_recording_begins_with_a_clock_that_it_cannot_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time_ns: int
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: time_ns)
    with pytest.raises(UsageError, match="not between 1970 and 2262: set it"):
        recorder_for(tmp_path / "a.fabrec", [], 1.0, "")
    assert not list(tmp_path.iterdir())


def finding(tick: Tick, change: str) -> Note:
    fields = {"cause": "link_down", "subject": "leaf1/up1"}
    return Note(
        kind="finding", time_ns=tick.time_ns, seq=tick.seq, text="", change=change, finding=fields
    )


def test_notes_of_ticks_that_were_not_written_are_recorded_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a tick that is dropped while the disk hangs, and of one that is lost on a full disk."""
    ticks = quiet_ticks(700)
    path = tmp_path / "a.fabrec"
    recorder = record(path, ticks[:2])
    with hanging_disk(monkeypatch) as answers:
        for tick in ticks[2:90]:
            recorder.accept(tick)
        recorder.accept(ticks[90], notes=[finding(ticks[90], "open")])
        assert recorder.status.lost_ticks
        answers.set()
        wait_for(lambda: not recorder.waiting)
    lost = recorder.status.lost_ticks
    with no_file_larger_than(path.stat().st_size):
        for tick in ticks[91:690]:
            wait_for(lambda: recorder.waiting < 30)
            recorder.accept(tick, notes=[finding(tick, "close")] if tick.seq == 100 else ())
        wait_for(lambda: recorder.status.lost_ticks > lost)
    for tick in ticks[690:]:
        recorder.accept(tick)
    assert not recorder.close().trouble
    with Recording(path) as recording:
        assert [(note.seq, note.change) for note in recording.notes()] == [
            (90, "open"), (100, "close")
        ]  # fmt: skip


def test_a_bookmark_that_is_set_on_a_full_disk_is_kept(tmp_path: Path) -> None:
    ticks = quiet_ticks(30)
    segments = Segments(tmp_path / "pod.fabrec", Rotation(every_s=20))
    recorder = Recorder(segments, session(LeafSpine()), retry_s=0.0)
    recorder.accept(ticks[0])
    wait_for(lambda: recorder.status.ticks == 1)
    mark = Note(kind="bookmark", time_ns=ticks[21].time_ns, seq=21, text="here it began")
    with no_file_larger_than(0):
        recorder.accept(ticks[20])
        wait_for(lambda: recorder.status.lost_ticks == 1)
        recorder.note(mark)
        wait_for(lambda: not recorder.waiting)
        recorder.accept(ticks[22])
        wait_for(lambda: recorder.status.lost_ticks == 2)
    recorder.accept(ticks[23])
    recorder.close()
    with Timeline([tmp_path]) as timeline:
        assert timeline.notes() == [mark]


def test_after_an_internal_error_the_next_file_begins_with_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = quiet_ticks(40)
    segments = Segments(tmp_path / "pod.fabrec", Rotation(every_s=3600))
    recorder = Recorder(segments, session(LeafSpine()), retry_s=0.0)
    for tick in ticks[:20]:
        recorder.accept(tick)
    wait_for(lambda: recorder.status.ticks == 20)

    def fails(*_: object) -> int:
        raise MemoryError

    lost = NodeStatus("spine2", NodeState.LOST, START_NS, "no route", "no route")
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", fails)
        recorder.accept(
            msgspec.structs.replace(ticks[20], statuses=(lost,)),
            notes=[finding(ticks[20], "open")],
        )
        wait_for(lambda: recorder.status.lost_ticks == 1)
    for tick in ticks[21:]:
        recorder.accept(tick)
    status = recorder.close()
    assert (status.ticks, status.lost_ticks, status.trouble) == (39, 1, "")
    first, second = sorted(tmp_path.iterdir())
    assert ticks_in(first)[:20] == ticks[:20]
    assert [tick.frames for tick in ticks_in(second)] == [tick.frames for tick in ticks[21:]]
    with Timeline([second]) as timeline:
        first_tick = next(timeline.ticks())
        assert dict(first_tick.hellos) == dict(ticks[0].hellos)
        assert {s.node: s.state for s in first_tick.statuses}["spine2"] is NodeState.LOST
        assert [(note.seq, note.change) for note in timeline.notes()] == [(20, "open")]


def test_events_of_a_full_disk_are_recorded_when_there_is_room(tmp_path: Path) -> None:
    ticks = quiet_ticks(60)
    segments = Segments(tmp_path / "pod.fabrec", Rotation(every_s=20))
    recorder = Recorder(segments, session(LeafSpine()), retry_s=0.0)
    recorder.accept(msgspec.structs.replace(ticks[0], hellos=()))
    wait_for(lambda: recorder.status.ticks == 1)
    with no_file_larger_than(0):
        for tick in [msgspec.structs.replace(ticks[20], hellos=ticks[0].hellos), *ticks[21:30]]:
            recorder.accept(tick)
        wait_for(lambda: recorder.status.lost_ticks == 10)
    for tick in ticks[30:]:
        recorder.accept(tick)
    assert not recorder.close().trouble
    with Timeline([tmp_path]) as timeline:
        last = list(timeline.ticks())[-30:]
    assert last[0].hellos == ticks[0].hellos
    assert [tick.frames for tick in last] == [tick.frames for tick in ticks[30:]]


def test_an_existing_recording_is_continued(tmp_path: Path) -> None:
    ticks = quiet_ticks(10)
    record(tmp_path / "a.fabrec", ticks).close()
    later = [msgspec.structs.replace(t, time_ns=t.time_ns + 99 * SECOND_NS) for t in ticks]
    record(tmp_path / "a.fabrec", later).close()
    assert ticks_in(tmp_path / "a.fabrec") == [*ticks, *later]
