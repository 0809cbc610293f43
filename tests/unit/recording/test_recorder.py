"""The recorder: in files one after the other, and never in the way of the watching."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from fabmon.fabric.tick import Tick
from fabmon.recording.errors import InUse, NotARecording
from fabmon.recording.recorder import Recorder
from fabmon.recording.segments import Rotation, Segments
from fabmon.recording.timeline import Timeline
from tests.making import SECOND_NS, START_NS, LeafSpine
from tests.unit.recording.making import quiet_ticks, session, ticks_in


def record(path: Path, ticks: list[Tick], rotation: Rotation | None = None) -> Recorder:
    recorder = Recorder(Segments(path, rotation or Rotation()), session(LeafSpine()))
    for tick in ticks:
        wait_for(lambda: recorder.waiting < 30)
        recorder.accept(tick)
    wait_for(lambda: not recorder.waiting)
    return recorder


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.0005)


def test_what_is_accepted_is_recorded(tmp_path: Path) -> None:
    ticks = quiet_ticks(30)
    status = record(tmp_path / "a.fabrec", ticks).close()
    assert (status.ticks, status.lost_ticks, status.trouble) == (30, 0, "")
    assert ticks_in(tmp_path / "a.fabrec") == ticks


def test_files_of_a_rotation_are_one_timeline(tmp_path: Path) -> None:
    ticks = quiet_ticks(50)
    record(tmp_path / "pod.fabrec", ticks, Rotation(every_s=20)).close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"pod-20251121T0440{second}Z.fabrec" for second in ("00", "20", "40")]
    assert [len(ticks_in(path)) for path in sorted(tmp_path.iterdir())] == [20, 20, 10]
    with Timeline([tmp_path]) as timeline:
        assert [tick.frames for tick in timeline.ticks()] == [tick.frames for tick in ticks]
        assert [tick.seq for tick in timeline.ticks()] == [tick.seq for tick in ticks]
        at = START_NS + 30 * SECOND_NS
        assert {name for name, _ in timeline.prime(at)[0].hellos} == set(LeafSpine().hellos())


@pytest.mark.parametrize(
    ("rotation", "most_s"),
    [(Rotation(), 89), (Rotation(every_s=20), 89), (Rotation(every_s=20, keep_bytes=1), 19)],
)
def test_how_far_back_is_kept_grows_until_a_file_is_removed(
    tmp_path: Path, rotation: Rotation, most_s: int
) -> None:
    recorder = Recorder(Segments(tmp_path / "pod.fabrec", rotation), session(LeafSpine()))
    told = []
    for tick in quiet_ticks(90):
        recorder.accept(tick)
        wait_for(lambda ticks=tick.seq + 1: recorder.status.ticks >= ticks)  # type: ignore[misc]
        told.append(recorder.status.kept_s)
    recorder.close()
    assert told[:20] == [float(second) for second in range(20)]
    assert max(told) == most_s


def test_ticks_keep_their_numbers_when_a_rotation_removes_the_oldest_file(tmp_path: Path) -> None:
    ticks = quiet_ticks(60)
    record(tmp_path / "pod.fabrec", ticks, Rotation(every_s=20)).close()
    with Timeline([tmp_path]) as timeline:
        at = START_NS + 45 * SECOND_NS
        assert [tick.seq for tick in timeline.prime(at)] == [43, 44]
        for oldest in sorted(tmp_path.iterdir())[:2]:
            oldest.unlink()
            assert timeline.refresh()
            assert [tick.seq for tick in timeline.ticks(at)] == list(range(45, 60))
            assert [tick.seq for tick in timeline.prime(at)] == [43, 44]


def test_only_what_is_to_be_kept_is_kept_and_other_files_are_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "pod-notes.fabrec"
    other.write_text("mine")
    record(tmp_path / "pod.fabrec", quiet_ticks(60), Rotation(every_s=10, keep_bytes=9000)).close()
    assert other.read_text() == "mine"
    files = sorted(path for path in tmp_path.iterdir() if path != other)
    assert 1 <= len(files) < 6
    assert sum(path.stat().st_size for path in files[:-1]) <= 9000
    with Timeline(files) as timeline:
        assert timeline.until_ns == START_NS + 59 * SECOND_NS


def test_all_files_together_take_no_more_room_than_they_may(tmp_path: Path) -> None:
    recorder = Recorder(
        Segments(tmp_path / "pod.fabrec", Rotation(every_bytes=4000, keep_bytes=16_000)),
        session(LeafSpine()),
    )
    most = 0
    for number, tick in enumerate(quiet_ticks(120), start=1):
        # A file's name has its time to the second: a second a tick.
        recorder.accept(tick)
        wait_for(lambda count=number: recorder.status.ticks == count)  # type: ignore[misc]
        most = max(most, sum(path.stat().st_size for path in tmp_path.iterdir()))
    recorder.close()
    assert 8000 < most <= 16_000 + 500


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """What a quota or a full disk does to a write: it fails, after it wrote a part."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_told_once_and_recording_goes_on_when_there_is_room(
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
        "recording goes on",
    ]
    assert ticks_in(path) == ticks


def test_a_disk_that_is_full_from_the_start_leaves_no_file_and_is_tried_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.fabrec"
    with no_file_larger_than(0), pytest.raises(OSError, match="File too large"):
        Recorder(Segments(path, Rotation()), session(LeafSpine()))
    assert not path.exists()
    path.touch()
    record(path, quiet_ticks(5)).close()
    assert ticks_in(path) == quiet_ticks(5)


def test_what_cannot_be_read_in_a_directory_is_passed_over_and_told(tmp_path: Path) -> None:
    record(tmp_path / "a.fabrec", quiet_ticks(5)).close()
    (tmp_path / "b.fabrec").touch()
    (tmp_path / "c.fabrec").write_text("years of work")
    with Timeline([tmp_path]) as timeline:
        assert list(timeline.ticks()) == quiet_ticks(5)
        lost = [(path.name, loss.end, loss.text) for path, loss in timeline.losses]
        assert lost == [
            ("b.fabrec", 0, "not a recording of fabmon"),
            ("c.fabrec", 13, "not a recording of fabmon"),
        ]
        (tmp_path / "b.fabrec").unlink()
        assert [path.name for path, _ in timeline.losses] == ["b.fabrec", "c.fabrec"]
        timeline.refresh()
        assert [path.name for path, _ in timeline.losses] == ["c.fabrec"]
    (tmp_path / "a.fabrec").unlink()
    with pytest.raises(NotARecording, match=r"c\.fabrec: not a recording"):
        Timeline([tmp_path])
    with pytest.raises(NotARecording):
        Timeline([tmp_path / "c.fabrec"])


def test_a_file_that_is_something_else_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("years of work")
    with pytest.raises(NotARecording, match="not a recording"):
        Recorder(Segments(path, Rotation()), session(LeafSpine()))
    assert path.read_text() == "years of work"


def test_a_file_that_another_records_to_is_not_touched(tmp_path: Path) -> None:
    ticks = quiet_ticks(30)
    path = tmp_path / "a.fabrec"
    recorder = record(path, ticks[:10])
    with pytest.raises(InUse, match="another fabmon is recording to it"):
        Recorder(Segments(path, Rotation()), session(LeafSpine()))
    for tick in ticks[10:]:
        recorder.accept(tick)
    assert not recorder.close().trouble
    assert ticks_in(path) == ticks


def test_where_nothing_can_be_written_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Recorder(Segments(tmp_path / "file" / "a.fabrec", Rotation()), session(LeafSpine()))


def test_a_disk_that_hangs_does_not_hold_up_the_watching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = quiet_ticks(100)
    recorder = record(tmp_path / "a.fabrec", ticks[:2])
    release = time.monotonic() + 0.3
    real = os.pwrite

    def slow(fd: int, data: memoryview | bytes, at: int) -> int:
        time.sleep(max(0.0, release - time.monotonic()))
        return real(fd, data, at)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", slow)
        patched.setattr(os, "pwritev", lambda fd, data, at: slow(fd, b"".join(data), at))
        for tick in ticks[2:]:
            recorder.accept(tick)
        assert "too slow" in recorder.status.trouble
        lost = recorder.status.lost_ticks
        assert lost
        status = recorder.close()
    assert status.lost_ticks == lost
    assert len(ticks_in(tmp_path / "a.fabrec")) == 100 - lost


def test_what_a_lost_tick_told_is_told_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node says hello while the disk hangs; it is there when the disk answers again."""
    ticks = quiet_ticks(100)
    ours = dict(ticks[0].hellos)["gpu001"]

    def without(tick: Tick) -> Tick:
        others = tuple(each for each in tick.hellos if each[0] != "gpu001")
        return msgspec.structs.replace(tick, hellos=others)

    recorder = record(tmp_path / "a.fabrec", [without(ticks[0]), *ticks[1:2]])
    gate = threading.Event()
    real = os.pwritev

    def slow(fd: int, data: list[bytes], at: int) -> int:
        gate.wait()
        return real(fd, data, at)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", slow)
        late = msgspec.structs.replace(ticks[90], hellos=(("gpu001", ours),))
        for tick in [*ticks[2:90], late]:
            recorder.accept(tick)
        assert recorder.status.lost_ticks
        gate.set()
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


def test_while_nothing_can_be_written_what_is_told_is_kept(tmp_path: Path) -> None:
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


def test_it_goes_on_with_a_file_that_is_there(tmp_path: Path) -> None:
    ticks = quiet_ticks(10)
    record(tmp_path / "a.fabrec", ticks).close()
    later = [msgspec.structs.replace(t, time_ns=t.time_ns + 99 * SECOND_NS) for t in ticks]
    record(tmp_path / "a.fabrec", later).close()
    assert ticks_in(tmp_path / "a.fabrec") == [*ticks, *later]
