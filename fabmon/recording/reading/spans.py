"""The frames of a file by kind, its blocks by the ticks that they hold, and a cache of blocks."""

from __future__ import annotations

import bisect
import os
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabmon.recording.format.block import Block, RowTicks, decode_ticks
from fabmon.recording.format.errors import Damaged
from fabmon.recording.format.frames import FrameEntry, FrameKind
from fabmon.recording.reading.frame_reader import FrameReader
from fabmon.recording.reading.record_checks import check_ticks

_Numbered = list[tuple[int, FrameEntry]]
"""Frames with the number of their session."""

_CACHED_VALUES = 4 << 20
"""Two spans of a large fabric."""
_TICKS_BYTES = 1 << 14
"""The beginning of a payload that nearly always holds the section with the ticks."""
_MAX_SPAN_VALUES = 1 << 24
"""The most values of the blocks of one span, which are in memory together."""
_PARTS_AT_ONCE = 32
_THREADS = min(4, os.cpu_count() or 1)


class BlockSpan:
    """The blocks of one run of ticks; each holds some of the nodes. Times are in ns, UTC."""

    def __init__(self, session: int, time_ns: int, until_ns: int, provisional: bool) -> None:
        self.session = session
        self.time_ns = time_ns
        self.until_ns = until_ns
        self.provisional = provisional
        self.parts: dict[int, FrameEntry] = {}

    @property
    def peak_utilisation(self) -> float:
        """Utilisation of the busiest link during the span; NaN where the index does not have it."""
        return max((each.peak_utilisation for each in self.parts.values()), default=float("nan"))


class SortedFrames(NamedTuple):
    """All frames of a file: by kind, events with the number of their session, blocks by span.

    Events and spans are sorted by time: between sessions of a file the clock may have been set
    back. `span_ends` [spans] is the latest end of each span and those before it, ns.
    """

    by_kind: Mapping[str, Sequence[FrameEntry]]
    events: _Numbered
    spans: list[BlockSpan]
    span_ends: NDArray[np.int64]

    def of(self, kind: FrameKind) -> Sequence[FrameEntry]:
        """The frames of a kind, in the file's order; notes and minutes by time, each once."""
        return self.by_kind.get(kind, ())

    def session_of(self, entry: FrameEntry) -> int:
        """The number of a frame's session."""
        sessions = self.of(FrameKind.SESSION)
        return max(0, bisect.bisect_right(sessions, entry.offset, key=lambda e: e.offset) - 1)


def sort_frames(entries: Iterable[FrameEntry]) -> SortedFrames:
    """The frames of a file, given in its order, by kind."""
    kinds: dict[str, _Numbered] = {}
    session = -1
    for entry in entries:
        session += entry.header.kind == FrameKind.SESSION
        kinds.setdefault(entry.header.kind, []).append((max(0, session), entry))
    for kind in (FrameKind.NOTE, FrameKind.MINUTE, FrameKind.EVENTS):
        kinds[kind] = _once(kinds.get(kind, []))
    spans = _spans(kinds.get(FrameKind.BLOCK, []))
    return SortedFrames(
        {kind: [entry for _, entry in numbered] for kind, numbered in kinds.items()},
        kinds[FrameKind.EVENTS],
        spans,
        np.maximum.accumulate(np.array([span.until_ns for span in spans], np.int64)),
    )


def _once(entries: _Numbered) -> _Numbered:
    """Frames by time, each once: a writer that was killed while it settled leaves some twice."""
    unique = {
        (session, e.header.time_ns, e.header.part, e.header.crc): (session, e)
        for session, e in entries
    }
    return sorted(
        unique.values(), key=lambda each: (each[1].header.time_ns, each[0], each[1].offset)
    )


def _spans(entries: _Numbered) -> list[BlockSpan]:
    """Blocks by the ticks that they hold; provisional ones only where no settled one has them."""
    spans: dict[tuple[int, int, int, bool], BlockSpan] = {}
    for session, entry in entries:
        head = entry.header
        key = (session, head.time_ns, head.until_ns, head.provisional)
        spans.setdefault(key, BlockSpan(*key)).parts[head.part] = entry
    settled = sorted(
        (s for s in spans.values() if not s.provisional), key=lambda s: (s.session, s.time_ns)
    )
    kept = list(settled)
    starts = [(s.session, s.time_ns) for s in settled]
    for span in spans.values():
        if span.provisional:
            place = bisect.bisect_right(starts, (span.session, span.time_ns)) - 1
            before = settled[place] if place >= 0 else None
            if before is None or before.session != span.session or span.until_ns > before.until_ns:
                kept.append(span)
    return sorted(kept, key=lambda s: (s.time_ns, s.session))


class BlockCache:
    """The blocks of one file, decoded on request; the last ones are kept for further seeks."""

    def __init__(self, frames: FrameReader) -> None:
        self._frames = frames
        self._blocks: OrderedDict[int, Block] = OrderedDict()
        self._ticks: dict[int, RowTicks] = {}
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Drop the blocks and end the threads, until a block is read again."""
        self._blocks, self._ticks = OrderedDict(), {}
        if self._pool is not None:
            self._pool.shutdown()
        self._pool = None

    def forget(self, start: int) -> None:
        """Drop what was read from a byte offset on: it may have changed."""
        self._ticks = {offset: ticks for offset, ticks in self._ticks.items() if offset < start}
        for offset in [offset for offset in self._blocks if offset >= start]:
            del self._blocks[offset]

    def of(self, span: BlockSpan) -> list[Block]:
        """The sound blocks of a span, decoded on several cores."""
        with self._frames.file.pinned():
            parts = span.parts.values()
            self._read([entry for entry in parts if entry.offset not in self._blocks])
            known = [entry.offset for entry in parts if entry.offset in self._blocks]
            for offset in known:
                self._blocks.move_to_end(offset)
            blocks = [self._blocks[offset] for offset in known]
            self._drop_oldest()
        return blocks

    def ticks_of(self, span: BlockSpan) -> RowTicks | None:
        """The ticks of a span, without its counters; None where they are lost."""
        with self._frames.file.pinned():
            for entry in span.parts.values():
                if entry.offset not in self._ticks:
                    ticks = self._read_ticks(entry)
                    if ticks is None:
                        continue
                    self._ticks[entry.offset] = ticks
                return self._ticks[entry.offset]
        return None

    def _read_ticks(self, entry: FrameEntry) -> RowTicks | None:
        """The ticks from the beginning of a payload, else from the whole of it."""
        start = self._frames.payload_start(entry, _TICKS_BYTES)
        try:
            ticks = decode_ticks(start)
            check_ticks(entry.header, ticks)
            return ticks
        except Damaged:
            self._read([entry] if entry.offset not in self._blocks else [])
            block = self._blocks.get(entry.offset)
            return None if block is None else block.ticks

    def check(self, entry: FrameEntry, sizes: Counter[tuple[int, int, bool]]) -> None:
        """Decode a block without keeping it; a damaged one is a loss.

        `sizes` counts the values of each span.
        """
        block = self._decode(entry)
        if not isinstance(block, Damaged):
            span = (entry.header.time_ns, entry.header.until_ns, entry.header.provisional)
            sizes[span] += block.values.size
            if sizes[span] > _MAX_SPAN_VALUES:
                block = _too_many(entry)
        if isinstance(block, Damaged):
            self._frames.report_loss(entry, block)

    def _read(self, entries: Iterable[FrameEntry]) -> None:
        """Decode the blocks of one span."""
        wanted = [entry for entry in entries if not self._frames.is_bad(entry)]
        if len(wanted) > 1 and self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, "fabmon-decode")
        each = self._pool.map if len(wanted) > 1 and self._pool else map
        size = 0
        for start in range(0, len(wanted), _PARTS_AT_ONCE):
            some = wanted[start : start + _PARTS_AT_ONCE]
            for entry, block in zip(some, each(self._decode, some), strict=True):
                if not isinstance(block, Damaged):
                    size += block.values.size
                    if size <= _MAX_SPAN_VALUES:
                        self._blocks[entry.offset] = block
                        continue
                    block = _too_many(entry)
                self._frames.report_loss(entry, block)

    def _decode(self, entry: FrameEntry) -> Block | Damaged:
        try:
            return self._frames.block(entry)
        except Damaged as error:
            return error
        except MemoryError:
            return Damaged(f"byte {entry.offset}: not enough memory for a block")

    def _drop_oldest(self) -> None:
        count = sum(each.values.size for each in self._blocks.values())
        while count > _CACHED_VALUES and len(self._blocks) > 1:
            _, dropped = self._blocks.popitem(last=False)
            count -= dropped.values.size


def _too_many(entry: FrameEntry) -> Damaged:
    return Damaged(f"byte {entry.offset}: more than {_MAX_SPAN_VALUES} values at the same time")
