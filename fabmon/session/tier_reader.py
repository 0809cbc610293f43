"""Tiers of some recordings for the screen, read in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fabmon.fabric.redaction import Redactor
from fabmon.recording.format.minutes import MINUTE_NS
from fabmon.recording.reading.tiers import Tier, TierBuilder, TierQuery
from fabmon.recording.reading.timeline import Timeline


class TierReader:
    """Reads recordings beside whoever else reads them; one tier at a time.

    `recordings` tells their paths. Nothing after `until_ns` is told, and with a `redactor` ports
    are asked for by the names that it gave.
    """

    def __init__(
        self,
        recordings: Callable[[], Sequence[Path]],
        until_ns: int | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self._recordings = recordings
        self._until_ns = until_ns
        self._named = str if redactor is None else redactor.port
        self._thread = ThreadPoolExecutor(1, "fabmon-tiers")
        self._closed = threading.Event()
        self._opened: tuple[list[Path], Timeline] | None = None
        self._had: TierBuilder | None = None

    async def of(self, wanted: TierQuery, told: Callable[[float], None]) -> Tier:
        """What is known of some bins; of the same a moment later only what is new is read.

        `told` hears how far it is, 0 to 1. Whoever is cancelled leaves nothing running for long.
        Raises RecordingError, OSError.
        """
        loop = asyncio.get_running_loop()
        gone = threading.Event()

        def is_wanted(share: float) -> bool:
            if gone.is_set() or self._closed.is_set():
                return False
            loop.call_soon_threadsafe(told, share)
            return True

        try:
            return await loop.run_in_executor(self._thread, self._read, wanted, is_wanted)
        finally:
            gone.set()

    def close(self) -> None:
        """Give up whatever is being read."""
        self._closed.set()
        self._thread.submit(self._let_go)
        self._thread.shutdown(wait=False)

    # In the thread.

    def _read(self, wanted: TierQuery, is_wanted: Callable[[float], bool]) -> Tier:
        gathering, self._had = self._had, None
        if gathering is not None and gathering.can_move(wanted):
            gathering.move(wanted)
        else:
            gathering = TierBuilder(wanted, self._named)
        if not is_wanted(0.0):
            return gathering.tier()
        from_ns, until_ns = gathering.next_ns, wanted.until_ns - 1
        if self._until_ns is not None:
            # A minute is known as a whole: one that ends later tells of what is later.
            until_ns = min(until_ns, self._until_ns - MINUTE_NS)
        length_ns, done = max(1, until_ns - from_ns), 0
        for minute in self._timeline().minutes(from_ns, until_ns):
            gathering.add(minute)
            percent = min(max((minute.start_ns - from_ns) * 100 // length_ns, 0), 100)
            if percent != done:
                done = percent
                if not is_wanted(done / 100):
                    return gathering.tier()
        self._had = gathering
        return gathering.tier()

    def _timeline(self) -> Timeline:
        """The recordings, as they are by now."""
        paths = list(self._recordings())
        if self._opened is not None and self._opened[0] == paths:
            self._opened[1].refresh()
        else:
            self._let_go()
            self._opened = (paths, Timeline(paths))
        return self._opened[1]

    def _let_go(self) -> None:
        if self._opened is not None:
            self._opened[1].close()
        self._opened = None
