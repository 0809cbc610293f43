"""Which frames belong together, and which of them count."""

from __future__ import annotations

import bisect
import os
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabmon.recording.format import block
from fabmon.recording.format.block import Block, RowTicks
from fabmon.recording.format.errors import Damaged
from fabmon.recording.format.frames import HEADER_BYTES, FrameEntry, FrameKind
from fabmon.recording.reading.frame_reader import FrameReader

_Told = list[tuple[int, FrameEntry]]


class BlockSpan:
    """The blocks of one run of ticks: each holds some of the nodes."""

    def __init__(self, session: int, time_ns: int, until_ns: int, provisional: bool) -> None:
        self.session = session
        self.time_ns = time_ns
        self.until_ns = until_ns
        self.provisional = provisional
        self.parts: dict[int, FrameEntry] = {}

    @property
    def peak_utilisation(self) -> float:
        """Utilisation of the busiest link in it; NaN where the index does not say."""
        return max((each.peak_utilisation for each in self.parts.values()), default=float("nan"))


class SortedFrames(NamedTuple):
    """Every frame where it is looked for; those of `events` with the number of their session.

    Events and spans are by time: between sessions of a file the clock may have been set back.
    `span_ends` is [spans], the latest end of each span and those before it, ns.
    """

    sessions: list[FrameEntry]
    states: list[FrameEntry]
    hellos: list[FrameEntry]
    topologies: list[FrameEntry]
    notes: list[FrameEntry]
    minutes: list[FrameEntry]
    events: _Told
    spans: list[BlockSpan]
    span_ends: NDArray[np.int64]

    def session_of(self, entry: FrameEntry) -> int:
        """The number of a frame's session."""
        return max(0, bisect.bisect_right([each.offset for each in self.sessions], entry.offset) - 1)


def sort_frames(entries: Iterable[FrameEntry]) -> SortedFrames:
    """All frames of a file, given in its order."""
    kinds: dict[str, _Told] = {}
    session = -1
    for entry in entries:
        session += entry.header.kind == FrameKind.SESSION
        kinds.setdefault(entry.header.kind, []).append((max(0, session), entry))
    spans = _spans(kinds.get(FrameKind.BLOCK, []))
    ends = np.maximum.accumulate(np.array([span.until_ns for span in spans], np.int64))

    def plain(kind: str) -> list[FrameEntry]:
        return [entry for _, entry in kinds.get(kind, [])]

    return SortedFrames(
        sessions=plain(FrameKind.SESSION),
        states=plain(FrameKind.STATE),
        hellos=plain(FrameKind.HELLOS),
        topologies=plain(FrameKind.TOPOLOGY),
        notes=[entry for _, entry in _once(kinds.get(FrameKind.NOTE, []))],
        minutes=[entry for _, entry in _once(kinds.get(FrameKind.MINUTE, []))],
        events=_once(kinds.get(FrameKind.EVENTS, [])),
        spans=spans,
        span_ends=ends,
    )


def _once(entries: _Told) -> _Told:
    """Each only once: a writer that was killed while it tidied up leaves some twice."""
    kept = {
        (session, e.header.time_ns, e.header.part, e.header.crc): (session, e)
        for session, e in entries
    }
    return sorted(kept.values(), key=lambda each: (each[1].header.time_ns, each[0], each[1].offset))


def _spans(entries: _Told) -> list[BlockSpan]:
    """Blocks by the ticks that they hold; provisional ones only where no settled one is."""
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
            inside = (
                place >= 0
                and settled[place].session == span.session
                and span.until_ns <= settled[place].until_ns
            )
            if not inside:
                kept.append(span)
    return sorted(kept, key=lambda s: (s.time_ns, s.session))


# The blocks of a recording, decoded when they are wanted and kept for a while.


_CACHED_SAMPLES = 4 << 20
"""Two runs of ticks of a large fabric."""
_TICKS_BYTES = 1 << 14
_THREADS = min(4, os.cpu_count() or 1)


class BlockCache:
    """Those of one file. Seeking goes to and fro, so that the last ones are kept."""

    def __init__(self, contents: FrameReader) -> None:
        self._contents = contents
        self._kept: OrderedDict[int, Block] = OrderedDict()
        self._ticks: dict[int, RowTicks] = {}
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def forget(self, from_: int) -> None:
        """Forget what was read from a place of the file on: it may have changed."""
        self._ticks = {at: ticks for at, ticks in self._ticks.items() if at < from_}
        for at in [at for at in self._kept if at >= from_]:
            del self._kept[at]

    def of(self, span: BlockSpan) -> list[Block]:
        """The blocks of a span, as far as they are sound, on as many cores as there are."""
        self._read([entry for entry in span.parts.values() if entry.offset not in self._kept])
        known = [entry.offset for entry in span.parts.values() if entry.offset in self._kept]
        for at in known:
            self._kept.move_to_end(at)
        found = [self._kept[at] for at in known]
        self._drop_oldest()
        return found

    def ticks_of(self, span: BlockSpan) -> RowTicks | None:
        """Times of a span's ticks and their busiest link, without its counters; None if lost."""
        for entry in span.parts.values():
            if entry.offset not in self._ticks:
                found = self._first_section(entry)
                if found is None:
                    continue
                self._ticks[entry.offset] = found
            return self._ticks[entry.offset]
        return None

    def _first_section(self, entry: FrameEntry) -> RowTicks | None:
        """Ticks lie at the beginning of a payload, and their own section has to inflate."""
        length = min(entry.header.length, _TICKS_BYTES)
        start = self._contents.file.read(entry.offset + HEADER_BYTES, length)
        self._contents.stay(entry)
        try:
            return block.decode_ticks(start)
        except Damaged:
            self._read([entry] if entry.offset not in self._kept else [])
            whole = self._kept.get(entry.offset)
            return None if whole is None else whole.ticks

    def _read(self, entries: Iterable[FrameEntry]) -> None:
        wanted = [entry for entry in entries if not self._contents.is_bad(entry)]
        if len(wanted) > 1 and self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, "fabmon-decode")
        each = self._pool.map if len(wanted) > 1 and self._pool else map
        for entry, found in zip(wanted, each(self._decode, wanted), strict=True):
            if isinstance(found, Damaged):
                self._contents.lose(entry, found)
            else:
                self._kept[entry.offset] = found

    def _decode(self, entry: FrameEntry) -> Block | Damaged:
        try:
            return block.decode_block(self._contents.file.payload(entry))
        except Damaged as error:
            return error
        except MemoryError:
            return Damaged(f"byte {entry.offset}: a block for which there is not enough memory")

    def _drop_oldest(self) -> None:
        held = sum(each.values.size for each in self._kept.values())
        while held > _CACHED_SAMPLES and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            held -= dropped.values.size
