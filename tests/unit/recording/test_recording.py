"""Reading recordings: whole, growing, killed, truncated, damaged, of a newer version."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.history.history import History
from fabmon.recording.format.block import pack_layouts
from fabmon.recording.format.errors import NotARecording, TooNew
from fabmon.recording.format.frames import HEADER_BYTES, FrameKind, encode_frame
from fabmon.recording.format.records import FORMAT, Note, SessionRecord
from fabmon.recording.format.sections import compress, join_sections
from fabmon.recording.reading.reader import Recording
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.frame_writer import FrameWriter
from fabmon.recording.writing.writer import Writer, resume
from tests.builders import SECOND_NS, START_NS, LeafSpine
from tests.unit.recording.builders import (
    by_node,
    eventful_ticks,
    last_values,
    long_ticks,
    quiet_ticks,
    session,
    ticks_in,
    values,
    write,
)


def test_ticks_are_read_as_they_were_written(tmp_path: Path) -> None:
    ticks = eventful_ticks()
    write(tmp_path / "a.fabrec", ticks)
    assert by_node(ticks_in(tmp_path / "a.fabrec")) == by_node(ticks)


def test_blocks_follow_each_other(tmp_path: Path) -> None:
    ticks = quiet_ticks(700)
    write(tmp_path / "a.fabrec", ticks)
    with Recording(tmp_path / "a.fabrec") as recording:
        assert len(recording.spans) == 3
        assert recording.is_closed
        assert not recording.losses
        assert list(recording.ticks()) == ticks
        assert [seq for _, seq in recording.times()] == list(range(700))


def test_a_reader_follows_a_file_that_grows(tmp_path: Path) -> None:
    ticks = quiet_ticks(300)
    writer = Writer.create(tmp_path / "a.fabrec", session(LeafSpine()))
    recording = Recording(tmp_path / "a.fabrec")
    seen: list[Tick] = []
    for tick in ticks:
        writer.write(tick)
        assert recording.refresh()
        seen += recording.ticks(seen[-1].time_ns + 1 if seen else 0)
    assert seen == ticks
    assert not recording.losses
    writer.close()
    recording.refresh()
    assert recording.is_closed
    assert list(recording.ticks()) == ticks
    recording.close()


def test_ticks_that_are_replaced_during_reading_are_returned_once(tmp_path: Path) -> None:
    """A reader has looked up provisional frames that the writer then settles as a block."""
    ticks = quiet_ticks(700)
    path = tmp_path / "a.fabrec"
    writer = write(path, ticks[:250], close=False)
    with Recording(path) as recording, Recording(path) as unread, Recording(path) as blocks:
        first = recording.ticks()
        runs = blocks.blocks()
        seen = [next(first) for _ in range(3)]
        given = [next(runs) for _ in range(3)]
        for tick in ticks[250:600]:
            writer.write(tick)
        known = unread.prime(ticks[100].time_ns)
        assert known is not None
        assert known.seq == 99
        assert last_values(known) == {node: values(frame) for node, frame in ticks[99].frames}
        seen += first
        assert seen == ticks[:600]
        given += runs
        rows = [b.ticks.seq[b.present.any(axis=1)].tolist() for _, _, run in given for b in run]
        assert [seq for each in rows for seq in each] == list(range(600))
        assert not recording.losses
        assert not unread.losses
        assert not blocks.losses
        assert list(unread.verify())
        assert not unread.losses
    writer.abandon()


def test_opening_a_file_without_index_reports_progress(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.fabrec", quiet_ticks(60), close=False).abandon()
    size = (tmp_path / "a.fabrec").stat().st_size
    progress: list[float] = []
    Timeline([tmp_path], progress.append).close()
    assert progress == sorted(progress)
    assert progress[0] == 0
    assert len(progress) > 120
    assert 1.9 * size < progress[-1] < 2 * size


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


@pytest.mark.timeout(7200)
def test_a_truncated_file_has_every_frame_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    ticks = long_ticks()
    write(path, ticks, close=False).abandon()
    whole = path.read_bytes()
    with Recording(path) as recording:
        entries = recording.entries()
    blocks = [(e.end, e.header.until_ns) for e in entries if e.header.kind == FrameKind.BLOCK]
    everything = by_node(ticks)
    tail = range(max(HEADER_BYTES + 1, len(whole) - (1 << 16)), len(whole))
    chosen = (
        tail if os.environ.get("FABMON_FULL_SWEEP") else _some(tail, [e.offset for e in entries])
    )
    for cut in sorted(chosen, reverse=True):
        os.truncate(path, cut)
        kept = max((until for end, until in blocks if end <= cut), default=0)
        try:
            got = by_node(ticks_in(path))
        except NotARecording:
            assert cut < entries[0].end
            continue
        assert [t for t in got if t.time_ns <= kept] == [
            t for t in everything if t.time_ns <= kept
        ], cut


def _some(every: range, at: list[int]) -> list[int]:
    """A sample of byte offsets, and all those around the beginnings of frames."""
    around = {place + near for place in at[-40:] for near in (-1, 0, 1, 20, 60)}
    sample = random.Random(1).sample(every, 150)
    return sorted({*sample, *(place for place in around if place in every)})


@pytest.mark.timeout(7200)
def test_a_flipped_bit_costs_one_frame(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    ticks = quiet_ticks(300)
    write(path, ticks, close=False).abandon()
    whole = path.read_bytes()
    with Recording(path) as recording:
        entries = recording.entries()
    chance = random.Random(7)
    times = 10_000 if os.environ.get("FABMON_FULL_SWEEP") else 200
    for _ in range(times):
        place = chance.randrange(len(whole))
        data = bytearray(whole)
        data[place] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        hit = next(e for e in entries if e.offset <= place < e.end)
        with Recording(path) as recording:
            got = {tick.seq: tick for tick in recording.ticks()}
            list(recording.verify())
            assert recording.losses, place
        spoilt = range(-1)
        if hit.header.kind == FrameKind.BLOCK:
            first, last = (
                (ns - START_NS) // SECOND_NS for ns in (hit.header.time_ns, hit.header.until_ns)
            )
            spoilt = range(first, last + 1)
        for tick in ticks:
            if tick.seq not in spoilt:
                expected = tick
                if hit.header.kind == FrameKind.EVENTS and tick.seq == 0:
                    expected = msgspec.structs.replace(tick, hellos=(), statuses=())
                assert got[tick.seq] == expected, (place, hit.header.kind, tick.seq)


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_damaged_hellos_are_restored_from_other_frames(tmp_path: Path, damaged: int) -> None:
    """A seek behind the damage knows every node, also one whose hello changed just before."""
    path = tmp_path / "a.fabrec"
    ticks = quiet_ticks(1900)
    changed = msgspec.structs.replace(dict(ticks[0].hellos)["gpu001"], probe="another")
    ticks[500] = msgspec.structs.replace(ticks[500], hellos=(("gpu001", changed),))
    ticks[1200] = msgspec.structs.replace(ticks[1200], hellos=ticks[0].hellos[:1])
    write(path, ticks)
    with Recording(path) as recording:
        hellos = [e for e in recording.entries() if e.header.kind == FrameKind.HELLOS]
        assert len(hellos) == 3
        at = [(e.header.time_ns - START_NS) // SECOND_NS + 2 for e in hellos]
        sound = [recording.state(ticks[seq].time_ns).hellos for seq in at]
    data = bytearray(path.read_bytes())
    data[hellos[damaged].offset + HEADER_BYTES + 5] ^= 0xFF
    path.write_bytes(data)
    with Recording(path) as recording:
        assert [recording.state(ticks[seq].time_ns).hellos for seq in at] == sound
        known = recording.prime(ticks[at[damaged]].time_ns)
        assert known is not None
        assert len(known.reads) == len(LeafSpine().hellos())


def test_random_damage_never_fails(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    write(path, eventful_ticks() + quiet_ticks(300)[40:], close=False).abandon()
    whole = path.read_bytes()

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, len(whole) - 1), st.binary(min_size=1, max_size=400))))
    def wounded(wounds: list[tuple[int, bytes]]) -> None:
        data = bytearray(whole)
        for place, noise in wounds:
            data[place : place + len(noise)] = noise
        path.write_bytes(data)
        try:
            recording = Recording(path)
        except (NotARecording, TooNew):
            return
        with recording:
            list(recording.ticks())
            list(recording.verify())
            recording.prime(START_NS + 200 * SECOND_NS)
            recording.notes()

    wounded()


def test_a_foreign_file_is_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    path.write_bytes(b"PK\x03\x04 or whatever")
    with pytest.raises(NotARecording, match="not a fabmon recording"):
        Recording(path)
    path.write_bytes(b"")
    with pytest.raises(NotARecording):
        Recording(path)


def test_a_newer_minor_is_read_and_a_newer_major_is_not(tmp_path: Path) -> None:
    ticks = quiet_ticks(3)
    for major, minor in ((FORMAT[0], FORMAT[1] + 7), (FORMAT[0] + 1, 0)):
        path = tmp_path / f"{major}.{minor}.fabrec"
        record = msgspec.to_builtins(session(LeafSpine()))
        record |= {"format": [major, minor], "a_new_key": {"of": "later"}}
        payload = compress(msgspec.json.encode(record))
        path.write_bytes(b"".join(encode_frame(FrameKind.SESSION, payload, time_ns=START_NS)))
        store = FrameWriter(path, is_new=False)
        store.continue_from(path.stat().st_size, 0)
        writer = Writer(store, session(LeafSpine()))
        for tick in ticks:
            writer.write(tick)
        writer.close()
        if major == FORMAT[0]:
            assert ticks_in(path) == ticks
        else:
            with pytest.raises(TooNew, match="newer fabmon"):
                Recording(path)


def test_unknown_kinds_of_frames_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    ticks = quiet_ticks(3)
    write(path, ticks)
    whole = path.read_bytes()
    strange = bytearray(b"".join(encode_frame(FrameKind.END, b"who knows", time_ns=START_NS)))
    strange[4:5] = b"q"
    import struct
    import zlib

    strange[HEADER_BYTES - 4 : HEADER_BYTES] = struct.pack("<I", zlib.crc32(strange[:40]))
    path.write_bytes(whole + bytes(strange))
    with Recording(path) as recording:
        assert list(recording.ticks()) == ticks
        assert not recording.losses


def test_decompression_bombs_are_losses_and_take_no_memory(tmp_path: Path) -> None:
    """A note, and blocks of a tick that claim very many layouts, ticks or values."""
    path = tmp_path / "a.fabrec"
    ticks = quiet_ticks(3)
    write(path, ticks, close=False).abandon()
    much = compress(bytes(1 << 30))
    seats = compress(msgspec.json.encode([{"node": "gpu001", "widths": [1 << 40]}]))
    tick, nothing = compress(bytes(24)), compress(b"")
    bombs = [(FrameKind.NOTE, much)] + [
        (FrameKind.BLOCK, join_sections(sections))
        for sections in (
            [much, tick, nothing, nothing, nothing],
            [pack_layouts([]), much, nothing, nothing, nothing],
            [seats, tick, compress(b"\xff"), nothing, much],
            [pack_layouts([]), tick, much, nothing, nothing],
        )
    ]
    with path.open("ab") as file:
        for number, (kind, payload) in enumerate(bombs):
            at_ns = START_NS + (10 + number) * SECOND_NS
            file.write(b"".join(bytes(e) for e in encode_frame(kind, payload, time_ns=at_ns)))
    tracemalloc.start()
    with Recording(path) as recording:
        assert list(recording.ticks()) == ticks
        assert recording.notes() == []
        list(recording.verify())
        assert len(recording.losses) == len(bombs)
    assert tracemalloc.get_traced_memory()[1] < 1 << 28
    tracemalloc.stop()


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


def test_bookmarks_and_findings_are_kept_with_their_time(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    writer = Writer.create(path, session(LeafSpine()))
    ticks = quiet_ticks(300)
    found = Note(
        kind="finding", time_ns=ticks[5].time_ns, seq=5, text="leaf1/up1 hot", change="open",
        finding={"cause": "ecmp_collision"},
    )  # fmt: skip
    mark = Note(kind="bookmark", time_ns=ticks[7].time_ns, seq=7, text="here it began")
    for tick in ticks:
        writer.write(tick, None, [found, found] if tick.seq == 5 else ())
        if tick.seq == 7:
            writer.note(mark)
            writer.note(msgspec.structs.replace(mark, text="and here"))
    with Recording(path) as recording:
        texts = [note.text for note in recording.notes()]
        assert texts == ["leaf1/up1 hot", "leaf1/up1 hot", "here it began", "and here"]
        assert recording.notes(until_ns=ticks[6].time_ns)[0] == found
    writer.close()


def test_after_a_full_disk_all_ticks_are_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = quiet_ticks(600)
    path = tmp_path / "a.fabrec"
    writer = write(path, ticks[:100], close=False)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", _half_then_full(os.pwrite))
        patched.setattr(os, "pwritev", lambda fd, data, at: os.pwrite(fd, b"".join(data)[:9], at))
        for tick in ticks[100:110]:
            with pytest.raises(OSError, match="No space left"):
                writer.write(tick)
        assert ticks_in(path) == ticks[:100]
    for tick in ticks[110:]:
        writer.write(tick)
    writer.close()
    assert ticks_in(path) == ticks


def _half_then_full(real: object) -> object:
    def pwrite(fd: int, data: memoryview, at: int) -> int:
        if len(data) > 100:
            return int(real(fd, data[: len(data) // 2], at))  # type: ignore[operator]
        raise OSError(28, "No space left on device")

    return pwrite


def test_prime_has_all_states_and_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    ticks = eventful_ticks()
    write(path, ticks)
    with Recording(path) as recording:
        known = recording.prime(START_NS + 30 * SECOND_NS)
    assert known is not None
    assert (known.seq, known.time_ns) == (29, START_NS + 29 * SECOND_NS)
    assert dict(known.hellos)["gpu001"] == ticks[20].hellos[0][1]
    assert {s.node: s.state for s in known.statuses}["spine2"] == "lost"
    reads = dict(known.reads)["gpu001"]
    assert reads.now.tolist() == values(dict(ticks[29].frames)["gpu001"])
    assert reads.before.tolist() == values(dict(ticks[28].frames)["gpu001"])
    assert reads.arrived_ns.tolist() == [START_NS + 29 * SECOND_NS]


def test_the_reader_in_the_documentation_returns_the_same_ticks(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "recording.md").read_text()
    text = page.partition("```python\n")[2].partition("```")[0]
    assert len(text.splitlines()) <= 80
    reference: dict[str, object] = {"__name__": "reference"}
    exec(compile(text, "recording.md", "exec"), reference)
    for close in (True, False):
        path = tmp_path / f"{close}.fabrec"
        ticks = long_ticks()
        writer = write(path, ticks, close=close)
        if not close:
            writer.abandon()
        read = reference["read"]
        got, events = read(path)  # type: ignore[operator]
        assert got == {
            (0, tick.time_ns, tick.seq): {(n, f.seq): f.blocks for n, f in tick.frames}
            for tick in ticks
        }
        assert len(events) == sum(
            bool(t.hellos or t.statuses or t.notices or t.hosts) for t in ticks
        )
