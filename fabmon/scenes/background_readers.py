"""Reads of a recording that take seconds to minutes: variability studies and tiers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from fabmon.analysis.fluctuation.links import PortFilter, all_ports
from fabmon.analysis.fluctuation.results import Fluctuation
from fabmon.analysis.fluctuation.study import SCREEN_KINDS, Study
from fabmon.fabric.model import Port
from fabmon.recording.format.minutes import MINUTE_NS
from fabmon.recording.reading.rate_tiers import Tier, TierBuilder, TierQuery
from fabmon.recording.reading.raw_chunks import raw_chunks
from fabmon.recording.reading.timeline import Timeline
from fabmon.scenes.builder import SceneBuilder

Paths = Callable[[], Sequence[Path]]
"""The recordings, as of now: those of a rotation change."""

T = TypeVar("T")


class _BackgroundReader:
    """Runs reads one after the other in a thread; a read ends soon when its caller is cancelled."""

    def __init__(self, thread_name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name)
        self._closed = threading.Event()

    async def _run(
        self, work: Callable[[Callable[[float], bool]], T], on_progress: Callable[[float], None]
    ) -> T:
        """The result of `work`. It reports its progress, 0 to 1, to the function that it is given,
        and ends soon when that returns False: it was cancelled.
        """
        loop = asyncio.get_running_loop()
        cancelled = threading.Event()

        def report(share: float) -> bool:
            if cancelled.is_set() or self._closed.is_set():
                return False
            loop.call_soon_threadsafe(on_progress, share)
            return True

        try:
            return await loop.run_in_executor(self._thread, work, report)
        finally:
            cancelled.set()


class StudyReader(_BackgroundReader):
    """Bandwidth variability in a part of some recordings.

    With a redactor, ports are selected and named by their redacted names.
    """

    def __init__(self, recordings: Paths, scenes: SceneBuilder) -> None:
        super().__init__("fabmon-study")
        self._recordings = recordings
        self._scenes = scenes

    async def of(
        self,
        from_ns: int,
        until_ns: int,
        ports: Collection[str] | None,
        on_progress: Callable[[float], None],
    ) -> Fluctuation:
        """The variability between two times on the ports with these ids (None: on all ports).

        Raises RecordingError, OSError.
        """
        return await self._run(
            lambda report: self._studied(from_ns, until_ns, ports, report), on_progress
        )

    def close(self) -> None:
        """Abandon the study that is running."""
        self._closed.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _studied(
        self,
        from_ns: int,
        until_ns: int,
        ports: Collection[str] | None,
        report: Callable[[float], bool],
    ) -> Fluctuation:
        redactor = self._scenes.redactor
        study = Study(self._port_filter(ports))
        if report(0.0):
            with Timeline(self._recordings()) as timeline:
                parts = raw_chunks(timeline, from_ns, until_ns)
                for chunk in self._scenes.chunk_builder().of(parts, from_ns, until_ns):
                    study.accept(chunk)
                    share = (chunk.start_ns - from_ns) / max(1, until_ns - from_ns)
                    if not report(min(max(share, 0.0), 1.0)):
                        break

        def go_on(_: float) -> None:
            if not report(1.0):
                raise InterruptedError

        found = study.result(SCREEN_KINDS, go_on)
        return found if redactor is None else found.redacted(redactor)

    def _port_filter(self, ports: Collection[str] | None) -> PortFilter:
        if ports is None:
            return all_ports
        redactor = self._scenes.redactor

        def is_selected(port: Port) -> bool:
            return (port.id if redactor is None else redactor.port(port.id)) in ports

        return is_selected


class TierReader(_BackgroundReader):
    """Highest and mean values of ports over hours or days, from the minutes of some recordings.

    Nothing after `until_ns` is read. With a redactor, ports are selected by their
    redacted names.
    """

    def __init__(
        self, recordings: Paths, scenes: SceneBuilder, until_ns: int | None = None
    ) -> None:
        super().__init__("fabmon-tiers")
        self._recordings = recordings
        self._until_ns = until_ns
        self._port_name = str if scenes.redactor is None else scenes.redactor.port
        self._opened: tuple[list[Path], Timeline] | None = None
        self._last: TierBuilder | None = None

    async def of(self, query: TierQuery, on_progress: Callable[[float], None]) -> Tier:
        """The bins of a query; for the last query at a later time only what is new is read.

        Raises RecordingError, OSError.
        """
        return await self._run(lambda report: self._read(query, report), on_progress)

    def close(self) -> None:
        """Abandon the read that is running, and close the files."""
        self._closed.set()
        self._thread.submit(self._close_timeline)
        self._thread.shutdown(wait=False)

    # Everything below runs in the thread.

    def _read(self, query: TierQuery, report: Callable[[float], bool]) -> Tier:
        builder, self._last = self._last, None
        if builder is not None and builder.can_move(query):
            builder.move(query)
        else:
            builder = TierBuilder(query, self._port_name)
        if not report(0.0):
            return builder.tier()
        from_ns, until_ns = builder.next_ns, query.until_ns - 1
        if self._until_ns is not None:
            # A minute that ends later holds values of after `until_ns`.
            until_ns = min(until_ns, self._until_ns - MINUTE_NS)
        length_ns, done = max(1, until_ns - from_ns), 0
        for minute in self._timeline().minutes(from_ns, until_ns):
            builder.add(minute)
            percent = min(max((minute.start_ns - from_ns) * 100 // length_ns, 0), 100)
            if percent != done:
                done = percent
                if not report(done / 100):
                    return builder.tier()
        self._last = builder
        return builder.tier()

    def _timeline(self) -> Timeline:
        """The recordings, with what was written since the last read."""
        paths = list(self._recordings())
        if self._opened is not None and self._opened[0] == paths:
            self._opened[1].refresh()
        else:
            self._close_timeline()
            self._opened = (paths, Timeline(paths))
        return self._opened[1]

    def _close_timeline(self) -> None:
        if self._opened is not None:
            self._opened[1].close()
        self._opened = None
