"""Recordings that a killed run left, and files of several runs, one session each."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.history.history import History
from fabmon.recording.format.frames import HEADER_BYTES, FrameKind
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.reading.reader import Recording
from fabmon.recording.reading.summary import summarise
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.writer import Writer, resume
from tests.builders import SECOND_NS, START_NS, LeafSpine
from tests.unit.recording.builders import (
    by_node,
    eventful_ticks,
    quiet_ticks,
    session,
    ticks_in,
    write,
)

WRITE_FOR_EVER = """
import sys
import tracemalloc
from pathlib import Path
from tests.unit.recording.builders import *
from tests.builders import *
writer = Writer.create(Path(sys.argv[1]), session(LeafSpine()))
for tick in quiet_ticks(2000):
    writer.write(tick)
    print(tick.seq, flush=True)
"""


@pytest.mark.parametrize("after", [0, 100, 255, 256, 400])
def test_a_killed_writer_loses_no_tick(tmp_path: Path, after: int) -> None:
    path = tmp_path / "a.fabrec"
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_FOR_EVER, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= after:
                break
        process.send_signal(signal.SIGKILL)
    got = ticks_in(path)
    assert len(got) > after
    assert got == quiet_ticks(len(got))


class Killed(BaseException):
    pass


@pytest.mark.parametrize("killed_at_write", range(12))
def test_a_writer_killed_while_settling_loses_no_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at_write: int
) -> None:
    """Each system call of the settling is interrupted in turn, before it and half-way."""
    ticks = quiet_ticks(256)
    killed_while_settling(tmp_path / "a.fabrec", ticks, monkeypatch, killed_at_write)
    with Recording(tmp_path / "a.fabrec") as recording:
        got = list(recording.ticks())
        list(recording.verify())
        assert not recording.losses or len(got) == 255
    assert got == ticks[: len(got)]
    assert len(got) >= 255


def killed_while_settling(
    path: Path, ticks: list[Tick], monkeypatch: pytest.MonkeyPatch, killed_at_write: int
) -> None:
    """Write ticks; the last completes a block and is interrupted at the given step."""
    writer = write(path, ticks[:-1], close=False)
    calls = 0

    def stop_at(real: object) -> object:
        def call(*args: object) -> object:
            nonlocal calls
            calls += 1
            if calls == killed_at_write // 2 + 1:
                if killed_at_write % 2 and isinstance(args[1], memoryview):
                    real(args[0], args[1][: len(args[1]) // 2], args[2])  # type: ignore[operator]
                raise Killed
            return real(*args)  # type: ignore[operator]

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", stop_at(os.pwrite))
        patched.setattr(os, "ftruncate", stop_at(os.ftruncate))
        with contextlib.suppress(Killed):
            writer.write(ticks[-1])
    writer.abandon()


def test_a_killed_recording_is_continued_with_another_session(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    first = eventful_ticks()
    write(tmp_path / "killed.fabrec", first, close=False).abandon()
    shutil.copy(tmp_path / "killed.fabrec", path)
    later = START_NS + 3600 * SECOND_NS
    record = SessionRecord(started_ns=later, interval_s=1.0, hosts=session(LeafSpine()).hosts)
    writer = resume(path, record)
    second = [
        msgspec.structs.replace(tick, time_ns=tick.time_ns + 3600 * SECOND_NS)
        for tick in quiet_ticks(300)
    ]
    for tick in second:
        writer.write(tick)
    writer.close()
    with Recording(path) as recording:
        assert len(recording.sessions) == 2
        got = list(recording.numbered())
        assert by_node(t for s, t in got if s == 0) == by_node(first)
        assert by_node(t for s, t in got if s == 1) == by_node(second)
        assert not recording.losses
        summary = summarise(recording)
    assert "  gap    11-21 04:40:39Z to 11-21 05:40:00Z (59 min 21 s)\n" in summary.text()
    (gap,) = summary.gaps
    assert (gap.end - gap.start).total_seconds() == 3561


def test_a_resume_keeps_the_counters_of_ticks_behind_the_last_block(tmp_path: Path) -> None:
    """Their nodes sent their hellos long before, in the settled part of the file."""
    path = tmp_path / "a.fabrec"
    ticks = quiet_ticks(300)
    write(path, ticks, close=False).abandon()
    later = msgspec.structs.replace(session(LeafSpine()), started_ns=START_NS + 3600 * SECOND_NS)
    resume(path, later).close()
    assert ticks_in(path) == ticks


def test_a_resume_keeps_the_ticks_of_a_killed_run_after_the_clock_was_set_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.fabrec"
    write(path, quiet_ticks(40))
    runs = [quiet_ticks(40)]
    for shift_s in (-60, 100):
        moved_ns = shift_s * SECOND_NS
        record = msgspec.structs.replace(session(LeafSpine()), started_ns=START_NS + moved_ns)
        writer = resume(path, record)
        runs.append(
            [msgspec.structs.replace(t, time_ns=t.time_ns + moved_ns) for t in eventful_ticks()]
        )
        for tick in runs[-1]:
            writer.write(tick)
        writer.abandon()
    with Recording(path) as recording:
        got = list(recording.numbered())
        assert [by_node(t for s, t in got if s == n) for n in range(3)] == list(map(by_node, runs))
        assert not recording.losses


@pytest.mark.parametrize("killed_at_write", range(12))
def test_a_resume_keeps_the_ticks_of_a_run_that_was_killed_while_settling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at_write: int
) -> None:
    path = tmp_path / "a.fabrec"
    ticks = quiet_ticks(256)
    killed_while_settling(path, ticks, monkeypatch, killed_at_write)
    before = ticks_in(path)
    later_ns = 3600 * SECOND_NS
    later = [msgspec.structs.replace(t, time_ns=t.time_ns + later_ns) for t in quiet_ticks(5)]
    record = msgspec.structs.replace(session(LeafSpine()), started_ns=START_NS + later_ns)
    writer = resume(path, record)
    for tick in later:
        writer.write(tick)
    writer.close()
    assert ticks_in(path) == [*before, *later]


HOUR_NS = 3600 * SECOND_NS


def one_after_the_other(path: Path, *starts_ns: int) -> None:
    """Write sessions to one file, each with one node of its own."""
    for number, start_ns in enumerate(starts_ns):
        name = f"gpu{number}"
        hosts = (Host(name=name),)
        record = SessionRecord(started_ns=start_ns, interval_s=1.0, hosts=hosts)
        writer = resume(path, record) if number else Writer.create(path, record)
        for tick in quiet_ticks(20):
            writer.write(
                msgspec.structs.replace(
                    tick,
                    time_ns=start_ns + tick.seq * SECOND_NS,
                    hellos=((name, dict(tick.hellos)["gpu001"]),) if not tick.seq else (),
                    frames=((name, dict(tick.frames)["gpu001"]),),
                    statuses=(NodeStatus(name, NodeState.UP, start_ns),) if not tick.seq else (),
                )
            )
        writer.close()


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_a_session_with_a_damaged_record_is_reconstructed(tmp_path: Path, damaged: int) -> None:
    path = tmp_path / "a.fabrec"
    one_after_the_other(path, START_NS, START_NS + HOUR_NS, START_NS + 2 * HOUR_NS)
    with Recording(path) as recording:
        ticks = list(recording.numbered())
        entries = [e for e in recording.entries() if e.header.kind == FrameKind.SESSION]
    data = bytearray(path.read_bytes())
    data[entries[damaged].offset + HEADER_BYTES + 9] ^= 255
    path.write_bytes(data)
    with Recording(path) as recording:
        assert list(recording.numbered()) == ticks
        assert [[host.name for host in each.hosts] for each in recording.sessions] == [
            ["gpu0"], ["gpu1"], ["gpu2"]
        ]  # fmt: skip
        assert len(recording.losses) == 1
    with Timeline([path]) as timeline:
        assert len(list(timeline.ticks())) == 60


def test_nodes_that_a_session_does_not_watch_are_lost_after_a_seek(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    one_after_the_other(path, START_NS, START_NS + HOUR_NS, START_NS + 2 * HOUR_NS)
    at = START_NS + 2 * HOUR_NS + 10 * SECOND_NS
    with Timeline([path]) as timeline:
        sought, played = History(timeline.hosts, 1.0), History(timeline.hosts, 1.0)
        there = [sought.accept(tick) for tick in timeline.prime(at)][-1]
        reached = [played.accept(tick) for tick in timeline.ticks(0, at - 1)][-1]
        for snapshot in (there, reached):
            assert {node: status.state for node, status in snapshot.statuses.items()} == {
                "gpu0": NodeState.LOST, "gpu1": NodeState.LOST, "gpu2": NodeState.UP
            }  # fmt: skip


def test_a_found_node_is_lost_where_the_next_run_does_not_watch_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.fabrec"
    record = session(LeafSpine())
    (ours,) = [host for host in record.hosts if host.name == "gpu002"]
    others = tuple(host for host in record.hosts if host is not ours)
    record = msgspec.structs.replace(record, hosts=others)
    ticks = quiet_ticks(20)
    ticks[1] = msgspec.structs.replace(ticks[1], hosts=(ours,))
    for start in (0, 100, 200):
        started_ns = START_NS + start * SECOND_NS
        again = msgspec.structs.replace(record, started_ns=started_ns)
        writer = resume(path, again) if start else Writer.create(path, record)
        for tick in ticks:
            shifted = msgspec.structs.replace(tick, time_ns=started_ns + tick.seq * SECOND_NS)
            if start == 100:
                rest = tuple(each for each in tick.statuses if each.node != ours.name)
                shifted = msgspec.structs.replace(shifted, hosts=(), statuses=rest)
            writer.write(shifted)
        writer.close()
    with Timeline([path]) as timeline:
        gone = [
            ((tick.time_ns - START_NS) // SECOND_NS, status.state)
            for tick in timeline.ticks()
            for status in tick.statuses
            if status.node == "gpu002"
        ]
        assert gone == [(0, NodeState.UP), (100, NodeState.LOST), (200, NodeState.UP)]
        states = [
            {s.node: s.state for s in timeline.prime(START_NS + at * SECOND_NS)[0].statuses}
            for at in (10, 110, 210)
        ]
        assert [each["gpu002"] for each in states] == [
            NodeState.UP, NodeState.LOST, NodeState.UP
        ]  # fmt: skip


def test_a_clock_that_is_set_back_between_sessions_loses_no_tick(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    one_after_the_other(path, START_NS + HOUR_NS, START_NS)
    with Timeline([path]) as timeline:
        times = [tick.time_ns for tick in timeline.ticks()]
        assert times == sorted(times)
        assert (timeline.start_ns, timeline.until_ns) == (times[0], times[-1])
        assert times[::39] == [START_NS, START_NS + HOUR_NS + 19 * SECOND_NS]
        assert [tick.time_ns for tick in timeline.ticks(times[0], times[-1])] == times
        assert [tick.time_ns for tick in timeline.ticks(0, times[19])] == times[:20]
        (known,) = timeline.prime(times[10])
        assert {node for node, _ in known.reads} == {"gpu1"}
