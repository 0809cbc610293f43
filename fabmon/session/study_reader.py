"""How steady bandwidth was in a part of some recordings, worked out in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fabmon.analysis.fluctuation.links import PortFilter, all_ports
from fabmon.analysis.fluctuation.results import Fluctuation
from fabmon.analysis.fluctuation.study import SCREEN_KINDS, Study
from fabmon.fabric.model import Port
from fabmon.fabric.redaction import Redactor
from fabmon.history.chunk_rates import RateChunkBuilder
from fabmon.recording.reading.raw_chunks import raw_chunks
from fabmon.recording.reading.timeline import Timeline


class StudyReader:
    """Reads recordings beside whoever else reads them; one study at a time.

    `recordings` tells their paths, `passages` makes what turns them into traffic. With a
    `redactor` what is told has no names, and ports are asked for by the names that it gave.
    """

    def __init__(
        self,
        recordings: Callable[[], Sequence[Path]],
        rate_chunks: Callable[[], RateChunkBuilder],
        redactor: Redactor | None = None,
    ) -> None:
        self._recordings = recordings
        self._passages = rate_chunks
        self._redactor = redactor
        self._thread = ThreadPoolExecutor(1, "fabmon-study")
        self._closed = threading.Event()

    async def of(
        self,
        from_ns: int,
        until_ns: int,
        ports: Collection[str] | None,
        told: Callable[[float], None],
    ) -> Fluctuation:
        """What happened between two times on some ports, by their ids (None: on all).

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

        def work() -> Fluctuation:
            return self._studied(from_ns, until_ns, ports, is_wanted)

        try:
            return await loop.run_in_executor(self._thread, work)
        finally:
            gone.set()

    def close(self) -> None:
        """Give up whatever is being worked out."""
        self._closed.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _studied(
        self,
        from_ns: int,
        until_ns: int,
        ports: Collection[str] | None,
        is_wanted: Callable[[float], bool],
    ) -> Fluctuation:
        study = Study(self._wanted(ports))
        if is_wanted(0.0):
            with Timeline(self._recordings()) as timeline:
                parts = raw_chunks(timeline, from_ns, until_ns)
                for rate_chunk in self._passages().of(parts, from_ns, until_ns):
                    study.accept(rate_chunk)
                    share = (rate_chunk.start_ns - from_ns) / max(1, until_ns - from_ns)
                    if not is_wanted(min(max(share, 0.0), 1.0)):
                        break
        found = study.result(SCREEN_KINDS)
        return found if self._redactor is None else found.renamed(self._redactor.text)

    def _wanted(self, ports: Collection[str] | None) -> PortFilter:
        if ports is None:
            return all_ports
        redactor = self._redactor

        def is_among(port: Port) -> bool:
            return (port.id if redactor is None else redactor.port(port.id)) in ports

        return is_among
