"""Reading recordings: whole, growing, killed, truncated, damaged, of a newer version."""

from __future__ import annotations

import os
import random
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabmon.fabric.tick import Tick
from fabmon.recording.format.block import pack_layouts
from fabmon.recording.format.errors import NotARecording, TooNew
from fabmon.recording.format.frames import HEADER_BYTES, FrameKind, encode_frame
from fabmon.recording.format.records import FORMAT, Note
from fabmon.recording.format.sections import compress, join_sections
from fabmon.recording.reading.reader import Recording
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing import block_builder
from fabmon.recording.writing.frame_writer import FrameWriter
from fabmon.recording.writing.writer import Writer
from tests.builders import SECOND_NS, START_NS, LeafSpine, frame
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


def test_of_a_flood_of_frames_in_a_tick_the_first_and_the_last_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row for each of them would have the values of all nodes: 4 MB of 1,024."""
    ticks = quiet_ticks(3)
    others = tuple(each for each in ticks[1].frames if each[0] != "gpu001")
    width = len(dict(ticks[1].frames)["gpu001"].blocks[0] or ()) - 1
    flood = [frame(100 + n, *[n] * (width - 1), n if n == 99 else None) for n in range(100)]
    ticks[1] = msgspec.structs.replace(
        ticks[1], frames=(*others, *(("gpu001", each) for each in flood))
    )
    columns = sum(len(each.blocks) + len(values(each)) + 3 for _, each in ticks[0].frames)
    monkeypatch.setattr(block_builder, "_TICK_VALUES", 5 * columns)
    write(tmp_path / "a.fabrec", ticks)
    read = [each for node, each in ticks_in(tmp_path / "a.fabrec")[1].frames if node == "gpu001"]
    assert [each.seq for each in read[:3]] == [100, 101, 102]
    assert 4 <= len(read) <= 7
    assert read[-1] == flood[-1]


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
    around = {place + near for place in at[-16:] for near in (-1, 0, 1, 20, 60)}
    sample = random.Random(1).sample(every, 60)
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
    times = 10_000 if os.environ.get("FABMON_FULL_SWEEP") else 80
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
            (0, tick.time_ns, tick.seq): {
                (node, frame.seq): [
                    block if block is None else list(block) for block in frame.blocks
                ]
                for node, frame in tick.frames
            }
            for tick in ticks
        }
        assert len(events) == sum(
            bool(t.hellos or t.statuses or t.notices or t.hosts) for t in ticks
        )
