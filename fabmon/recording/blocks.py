"""The blocks of a recording, decoded when they are wanted and kept for a while."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from fabmon.recording import block
from fabmon.recording.block import Block, Ticks
from fabmon.recording.contents import Contents
from fabmon.recording.errors import Damaged
from fabmon.recording.frames import HEADER_BYTES
from fabmon.recording.index import Entry
from fabmon.recording.spans import Span

_CACHED_SAMPLES = 4 << 20
"""Two runs of ticks of a large fabric."""
_TICKS_BYTES = 1 << 14
_THREADS = min(4, os.cpu_count() or 1)


class Blocks:
    """Those of one file. Seeking goes to and fro, so that the last ones are kept."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._kept: OrderedDict[int, Block] = OrderedDict()
        self._ticks: dict[int, Ticks] = {}
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

    def of(self, span: Span) -> list[Block]:
        """The blocks of a span, as far as they are sound, on as many cores as there are."""
        self._read([entry for entry in span.parts.values() if entry.at not in self._kept])
        known = [entry.at for entry in span.parts.values() if entry.at in self._kept]
        for at in known:
            self._kept.move_to_end(at)
        found = [self._kept[at] for at in known]
        self._drop_oldest()
        return found

    def ticks_of(self, span: Span) -> Ticks | None:
        """Times of a span's ticks and their busiest link, without its counters; None if lost."""
        for entry in span.parts.values():
            if entry.at not in self._ticks:
                found = self._first_section(entry)
                if found is None:
                    continue
                self._ticks[entry.at] = found
            return self._ticks[entry.at]
        return None

    def _first_section(self, entry: Entry) -> Ticks | None:
        """Ticks lie at the beginning of a payload, and their own section has to inflate."""
        length = min(entry.header.length, _TICKS_BYTES)
        start = self._contents.file.read(entry.at + HEADER_BYTES, length)
        self._contents.stay(entry)
        try:
            return block.ticks_of(start)
        except Damaged:
            self._read([entry] if entry.at not in self._kept else [])
            whole = self._kept.get(entry.at)
            return None if whole is None else whole.ticks

    def _read(self, entries: Iterable[Entry]) -> None:
        wanted = [entry for entry in entries if not self._contents.is_bad(entry)]
        if len(wanted) > 1 and self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, "fabmon-decode")
        each = self._pool.map if len(wanted) > 1 and self._pool else map
        for entry, found in zip(wanted, each(self._decode, wanted), strict=True):
            if isinstance(found, Damaged):
                self._contents.lose(entry, found)
            else:
                self._kept[entry.at] = found

    def _decode(self, entry: Entry) -> Block | Damaged:
        try:
            return block.decode(self._contents.file.payload(entry))
        except Damaged as error:
            return error
        except MemoryError:
            return Damaged(f"byte {entry.at}: a block for which there is not enough memory")

    def _drop_oldest(self) -> None:
        held = sum(each.values.size for each in self._kept.values())
        while held > _CACHED_SAMPLES and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            held -= dropped.values.size
