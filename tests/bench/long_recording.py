"""Makes recordings of many hours within seconds, by repeating a few blocks of traffic."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from fabmon.history.history import History
from fabmon.recording.format import block
from fabmon.recording.format.block import RowTicks
from fabmon.recording.format.frames import FrameKind
from fabmon.recording.format.minutes import MINUTE_NS
from fabmon.recording.format.records import Note, SessionRecord
from fabmon.recording.format.sections import compress, join_sections, pack_section, split_sections
from fabmon.recording.reading.reader import Recording
from fabmon.recording.writing.frame_writer import FrameWriter, PendingFrame
from fabmon.recording.writing.writer import Writer
from tests.bench.traffic import Traffic
from tests.builders import SECOND_NS, START_NS

_STATE_EVERY_S = 600
_NOTE_EVERY_S = 900


def make(path: Path, nodes: int, size: int, hours: float = 1e9) -> None:
    """Make a recording of some nodes, up to a size in bytes or a number of hours.

    Blocks are those of real traffic with later ticks; counters start anew with each
    repetition, as after a reboot.
    """
    with tempfile.TemporaryDirectory() as scratch:
        short = Path(scratch) / "short.fabrec"
        _record(short, nodes)
        with Recording(short) as source:
            _repeat(source, path, size, hours)


def _record(path: Path, nodes: int) -> None:
    """Record two blocks and a minute."""
    traffic = Traffic(nodes)
    history = History(traffic.hosts)
    hosts = tuple(traffic.hosts)
    session = SessionRecord(started_ns=START_NS, interval_s=1.0, hosts=hosts, tool="bench")
    writer = Writer.create(path, session)
    ticks = 512 if nodes <= 85 else 65
    for seq in range(ticks):
        tick = traffic.tick(seq, traffic.hellos() if not seq else ())
        writer.write(tick, history.accept(tick))
        traffic.step()
    writer.close()


def _repeat(source: Recording, path: Path, size: int, hours: float) -> None:
    by_kind: dict[str, list[PendingFrame]] = {}
    for entry in source.entries():
        head = entry.header
        piece = PendingFrame(
            FrameKind(head.kind), source.payload(entry), head.time_ns, head.until_ns, head.part
        )
        by_kind.setdefault(head.kind, []).append(piece)
    blocks = by_kind[FrameKind.BLOCK]
    groups = [
        [each for each in blocks if each.time_ns == time_ns]
        for time_ns in dict.fromkeys(each.time_ns for each in blocks)
    ]
    full = [group for group in groups if group[0].until_ns - group[0].time_ns > 5 * SECOND_NS]
    once = (FrameKind.SESSION, FrameKind.EVENTS, FrameKind.TOPOLOGY)
    store = FrameWriter(path)
    store.settle([piece for kind in once for piece in by_kind[kind]])
    at_s = next_state_s = next_note_s = 0
    next_minute_ns = START_NS // MINUTE_NS * MINUTE_NS + MINUTE_NS
    minute = by_kind[FrameKind.MINUTE][0]
    for group in itertools.cycle(full):
        pieces = list(_later(group, at_s))
        at_s += len(block.decode_ticks(pieces[0].payload).seq)
        now_ns = START_NS + at_s * SECOND_NS
        while next_minute_ns < now_ns:
            until_ns, next_minute_ns = next_minute_ns, next_minute_ns + MINUTE_NS
            pieces.append(minute._replace(time_ns=until_ns - MINUTE_NS, until_ns=until_ns))
        if at_s >= next_state_s:
            next_state_s += _STATE_EVERY_S
            for kind in (FrameKind.HELLOS, FrameKind.STATE):
                pieces.append(by_kind[kind][0]._replace(time_ns=now_ns, until_ns=now_ns))
        if at_s >= next_note_s:
            next_note_s += _NOTE_EVERY_S
            note = Note(kind="finding", time_ns=now_ns, seq=at_s, text="hot", change="open")
            note_json = compress(msgspec.json.encode(note))
            pieces.append(PendingFrame(FrameKind.NOTE, note_json, now_ns, now_ns))
        store.settle(pieces)
        if store.end >= size or at_s >= hours * 3600:
            break
    store.settle([PendingFrame(FrameKind.END, b"", now_ns, now_ns)])
    store.write_index()
    store.close()


def _later(group: list[PendingFrame], at_s: int) -> Iterator[PendingFrame]:
    """The same blocks at another time, some with more traffic and some with less."""
    for piece in group:
        sections = split_sections(piece.payload)
        ticks = RowTicks.unpacked(sections[1])
        seq = np.arange(at_s, at_s + len(ticks.seq))
        worst = ticks.peak_utilisation * np.float32(0.3 + 0.7 * abs(np.sin(at_s / 5000)))
        later = RowTicks(seq, START_NS + seq * SECOND_NS, worst)
        sections[1] = pack_section(later.planes())
        payload = join_sections(sections)
        first, last = int(later.time_ns[0]), int(later.time_ns[-1])
        yield piece._replace(
            payload=payload, time_ns=first, until_ns=last, peak_utilisation=float(np.nanmax(worst))
        )
