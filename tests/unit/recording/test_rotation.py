"""Files of a rotation: what they hold together, and which of them are removed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import Notice
from fabmon.history.history import History
from fabmon.recording.format.errors import InUse
from fabmon.recording.reading.reader import Recording
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.cut import copy_range
from fabmon.recording.writing.recorder import Recorder
from fabmon.recording.writing.segments import Rotation, Segments
from fabmon.session.recorder_setup import describe_status
from tests.builders import SECOND_NS, START_NS, LeafSpine
from tests.unit.recording.builders import quiet_ticks, record, session, ticks_in, wait_for


def test_files_of_a_rotation_are_one_timeline(tmp_path: Path) -> None:
    ticks = quiet_ticks(50)
    status = record(tmp_path / "pod.fabrec", ticks, Rotation(every_s=20)).close()
    names = sorted(path.name for path in tmp_path.iterdir())
    said = describe_status(status)
    assert said.startswith("recorded 50 ticks, ")
    assert said.endswith(f": 3 files, the last {tmp_path / names[-1]}")
    assert names == [f"pod-20251121T0440{second}Z.fabrec" for second in ("00", "20", "40")]
    assert [len(ticks_in(path)) for path in sorted(tmp_path.iterdir())] == [20, 20, 10]
    with Timeline([tmp_path]) as timeline:
        assert [tick.frames for tick in timeline.ticks()] == [tick.frames for tick in ticks]
        assert [tick.seq for tick in timeline.ticks()] == [tick.seq for tick in ticks]
        at = START_NS + 30 * SECOND_NS
        assert {name for name, _ in timeline.prime(at)[0].hellos} == set(LeafSpine().hellos())


def test_later_files_of_a_rotation_begin_with_the_state_of_earlier_ones(tmp_path: Path) -> None:
    """Also alone, and after the first files were removed."""
    ticks = quiet_ticks(60)
    wrong = Notice("absent", "netdev", "eth0", "netdev_tx_drops", "denied", "needs a group")
    ticks[30] = msgspec.structs.replace(ticks[30], notices=(("gpu001", wrong),))
    ticks[5] = msgspec.structs.replace(ticks[5], hosts=(Host(name="gpu099"),))
    record(tmp_path / "pod.fabrec", ticks, Rotation(every_s=20)).close()
    files = sorted(tmp_path.iterdir())
    with Timeline(files) as timeline:
        assert not any(tick.statuses for tick in list(timeline.ticks())[1:])
    for paths in ([files[1]], [files[2]], [tmp_path]):
        with Timeline(paths) as timeline:
            first, *others = timeline.ticks()
        assert dict(first.hellos) == dict(ticks[0].hellos)
        assert first.statuses == ticks[0].statuses
        assert [notice for _, notice in first.notices] == ([wrong] if paths == files[2:] else [])
        assert not any(tick.hellos or tick.statuses for tick in others)
        files[0].unlink(missing_ok=True)
    first_ns = START_NS + 20 * SECOND_NS
    with Timeline([tmp_path]) as timeline:
        history = History(timeline.hosts)
        moments = [history.accept(tick) for tick in timeline.ticks()]
        assert moments[0].time_ns == first_ns
        assert len(moments[0].fabric.ports) == 12
        assert copied(timeline, tmp_path / "cut", first_ns) == len(LeafSpine().hellos())


def copied(timeline: Timeline, path: Path, from_ns: int) -> int:
    """The number of hellos in a cut."""
    history = History(timeline.hosts)
    list(copy_range(timeline, path, from_ns, timeline.until_ns, history.accept))
    return sum(len(tick.hellos) for tick in ticks_in(path))


def test_a_removed_file_in_the_middle_costs_nothing_of_later_files(tmp_path: Path) -> None:
    ticks = quiet_ticks(60)
    again = dict(ticks[0].hellos)["gpu001"]
    other = msgspec.structs.replace(again, probe="another")
    ticks[30] = msgspec.structs.replace(ticks[30], hellos=(("gpu001", other),))
    record(tmp_path / "pod.fabrec", ticks, Rotation(every_s=20)).close()
    sorted(tmp_path.iterdir())[1].unlink()
    with Timeline([tmp_path]) as timeline:
        got = list(timeline.ticks())
    assert got[20].time_ns == START_NS + 40 * SECOND_NS
    assert got[20].hellos == ticks[30].hellos


@pytest.mark.parametrize(
    ("rotation", "most_s"),
    [(Rotation(), 89), (Rotation(every_s=20), 89), (Rotation(every_s=20, keep_bytes=1), 19)],
)
def test_the_kept_time_grows_until_a_file_is_removed(
    tmp_path: Path, rotation: Rotation, most_s: int
) -> None:
    recorder = Recorder(Segments(tmp_path / "pod.fabrec", rotation), session(LeafSpine()))
    kept_s = []
    for tick in quiet_ticks(90):
        recorder.accept(tick)
        wait_for(lambda ticks=tick.seq + 1: recorder.status.ticks >= ticks)  # type: ignore[misc]
        kept_s.append(recorder.status.kept_s)
    recorder.close()
    assert kept_s[:20] == [float(second) for second in range(20)]
    assert max(kept_s) == most_s


def test_ticks_keep_their_numbers_when_a_rotation_removes_the_oldest_file(tmp_path: Path) -> None:
    ticks = quiet_ticks(60)
    record(tmp_path / "pod.fabrec", ticks, Rotation(every_s=20)).close()
    with Timeline([tmp_path]) as timeline:
        at = START_NS + 45 * SECOND_NS
        assert [tick.seq for tick in timeline.prime(at)] == [44]
        for oldest in sorted(tmp_path.iterdir())[:2]:
            oldest.unlink()
            assert timeline.refresh()
            assert [tick.seq for tick in timeline.ticks(at)] == list(range(45, 60))
            assert [tick.seq for tick in timeline.prime(at)] == [44]


def test_a_rotation_removes_its_own_expired_files_only(tmp_path: Path) -> None:
    other = tmp_path / "pod-notes.fabrec"
    other.write_text("mine")
    record(tmp_path / "pod.fabrec", quiet_ticks(60), Rotation(every_s=10, keep_bytes=9000)).close()
    assert other.read_text() == "mine"
    files = sorted(path for path in tmp_path.iterdir() if path != other)
    assert 1 <= len(files) < 6
    assert sum(path.stat().st_size for path in files[:-1]) <= 9000
    with Timeline(files) as timeline:
        assert timeline.until_ns == START_NS + 59 * SECOND_NS


def test_a_file_of_a_rotation_by_size_gets_that_size(tmp_path: Path) -> None:
    """It ended with its first block: the ticks before they are one are ten times as large, and of
    a thousand nodes the ring began a file, with all their hellos, every 14 seconds."""
    most = 20_000
    record(tmp_path / "pod.fabrec", quiet_ticks(900), Rotation(every_bytes=most)).close()
    *finished, _ = sorted(tmp_path.iterdir())
    assert finished
    assert all(most <= path.stat().st_size < 2 * most for path in finished)


def test_room_is_left_for_as_many_ticks_as_wait_for_their_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was left for a whole file of them: with the size of three files to keep, none was."""
    monkeypatch.setattr("fabmon.recording.writing.block_builder._BLOCK_TICKS", 10)
    rotation = Rotation(every_bytes=20_000, keep_bytes=60_000)
    record(tmp_path / "pod.fabrec", quiet_ticks(2000), rotation).close()
    finished, *_ = (path.stat().st_size for path in sorted(tmp_path.iterdir()))
    assert finished >= 20_000


def test_all_files_together_stay_within_keep_bytes(tmp_path: Path) -> None:
    recorder = Recorder(
        Segments(tmp_path / "pod.fabrec", Rotation(every_bytes=4000, keep_bytes=16_000)),
        session(LeafSpine()),
    )
    most = 0
    for number, tick in enumerate(quiet_ticks(120), start=1):
        # The name of a file has its time in seconds: one tick per second.
        recorder.accept(tick)
        wait_for(lambda count=number: recorder.status.ticks == count)  # type: ignore[misc]
        most = max(most, sum(path.stat().st_size for path in tmp_path.iterdir()))
    recorder.close()
    assert 8000 < most <= 16_000 + 500


def test_files_of_a_rotation_in_use_by_another_recorder_are_not_changed(tmp_path: Path) -> None:
    ticks = quiet_ticks(60)
    rotation = Rotation(every_s=20, keep_bytes=1)
    recorder = record(tmp_path / "pod.fabrec", ticks[:30], rotation)
    segments = Segments(tmp_path / "pod.fabrec", rotation)
    later = msgspec.structs.replace(session(LeafSpine()), started_ns=START_NS + 50 * SECOND_NS)
    with pytest.raises(InUse, match=r"pod-20251121T044020Z\.fabrec: another fabmon is recording"):
        Recorder(segments, later)
    assert segments.remove_expired(tmp_path / "pod.fabrec") == []
    assert not recorder.close().trouble
    assert [path.name for path in segments.files()] == ["pod-20251121T044020Z.fabrec"]
    Recorder(segments, later).close()
    assert len(segments.files()) == 2


def test_a_clock_that_was_set_removes_nothing(tmp_path: Path) -> None:
    """Two hours ahead for 3 s, and 400 days for 4 s: a clock's difference is no age."""
    ticks = quiet_ticks(30)
    for first, last, ahead_s in ((10, 13, 2 * 3600), (20, 24, 400 * 86_400)):
        for seq in range(first, last):
            time_ns = ticks[seq].time_ns + ahead_s * SECOND_NS
            ticks[seq] = msgspec.structs.replace(ticks[seq], time_ns=time_ns)
    status = record(tmp_path / "pod.fabrec", ticks, Rotation(every_s=2, keep_s=3600)).close()
    assert (status.ticks, status.lost_ticks, status.removed) == (30, 0, 0)
    assert status.kept_s == 31.0, "25 steps of 1 s, two forward that count 3 s, two back"
    with Timeline([tmp_path]) as timeline:
        assert sorted(t.time_ns for t in timeline.ticks()) == sorted(t.time_ns for t in ticks)


def test_after_the_clock_was_set_back_the_same_file_goes_on(tmp_path: Path) -> None:
    ticks = quiet_ticks(20)
    ticks = [*ticks[:10], *(msgspec.structs.replace(t, time_ns=t.time_ns - 3600 * SECOND_NS)
                            for t in ticks[10:])]  # fmt: skip
    status = record(tmp_path / "a.fabrec", ticks).close()
    assert (status.ticks, status.lost_ticks, status.trouble) == (20, 0, "")
    assert [t.time_ns for t in ticks_in(tmp_path / "a.fabrec")] == sorted(t.time_ns for t in ticks)
    with Recording(tmp_path / "a.fabrec") as recording:
        assert len(recording.sessions) == 2
        assert list(recording.verify())
        assert not recording.losses


def test_the_oldest_recorded_time_is_removed_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also of earlier runs, by their ticks; what was written in the future is not the newest."""
    caplog.set_level("INFO", "fabmon.recording")
    ahead = [msgspec.structs.replace(t, time_ns=t.time_ns + 99 * 86_400 * SECOND_NS)
             for t in quiet_ticks(30)]  # fmt: skip
    rotation = Rotation(every_s=10, keep_s=30)
    record(tmp_path / "pod.fabrec", ahead, Rotation(every_s=10)).close()
    status = record(tmp_path / "pod.fabrec", quiet_ticks(60), rotation).close()
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        f"pod-20251121T0440{second}Z.fabrec" for second in (20, 30, 40, 50)
    ]
    assert status.removed == 5
    said = [each.getMessage() for each in caplog.records]
    assert [text.partition(":")[0] for text in said][:3] == [
        f"removed {tmp_path}/pod-20260228T0440{second}Z.fabrec" for second in ("00", "10", "20")
    ]


def test_the_file_of_a_clock_that_was_ahead_is_removed_before_those_of_a_later_run(
    tmp_path: Path,
) -> None:
    ahead, later = (
        [msgspec.structs.replace(t, time_ns=t.time_ns + days * 86_400 * SECOND_NS)
         for t in quiet_ticks(30)]
        for days in (400, 1)
    )  # fmt: skip
    rotation = Rotation(every_s=10)
    for ticks in (ahead, quiet_ticks(30)):
        record(tmp_path / "pod.fabrec", ticks, rotation).close()
    record(tmp_path / "pod.fabrec", later, Rotation(every_s=10, keep_s=40)).close()
    names = [path.name[4:19] for path in sorted(tmp_path.iterdir())]
    # All three begin with the same name: the first file has some of the second run, too.
    assert names[:2] == ["20251121T044000", "20251121T044020"]
    assert [name[:8] for name in names[2:]] == ["20251122"] * 3


def test_a_file_that_could_not_be_opened_once_is_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path / "pod.fabrec", quiet_ticks(20), Rotation(every_s=10)).close()
    segments = Segments(tmp_path / "pod.fabrec", Rotation(every_s=10, keep_bytes=0))
    current = tmp_path / "pod-20251121T044100Z.fabrec"
    with monkeypatch.context() as full:
        full.setattr("fabmon.recording.writing.segments.Recording", no_descriptors)
        assert segments.remove_expired(current) == []
    assert len(segments.remove_expired(current)) == 2


def no_descriptors(path: Path) -> NoReturn:
    """A recording, in a process that has no descriptor left."""
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))


def test_what_is_no_recording_costs_only_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A dangling link, a directory and a text, beside the files and in the place of the next."""
    for second, kind in (("10", "link"), ("20", "directory"), ("30", "text")):
        path = tmp_path / f"pod-20251121T0440{second}Z.fabrec"
        if kind == "link":
            path.symlink_to("gone")
        elif kind == "directory":
            path.mkdir()
        else:
            path.write_text("mine")
    rotation = Rotation(every_s=10, keep_s=10)
    status = record(tmp_path / "pod.fabrec", quiet_ticks(70), rotation).close()
    assert (status.ticks, status.lost_ticks, status.trouble) == (70, 0, "")
    assert status.removed == 4
    assert [path.stem[-3:-1] for path in sorted(tmp_path.iterdir())] == [
        "10", "20", "30", "40", "50", "00"
    ]  # fmt: skip
    assert len([each for each in caplog.records if "left alone" in each.getMessage()]) == 3
