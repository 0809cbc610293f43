"""The open findings of a watch, kept in its state directory: a watch that is killed and started
again takes them up."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import Future, wait

from fabmon.analysis.earlier_findings import EarlierFinding, kept_findings
from fabmon.analysis.scene import Scene
from fabmon.fabric.wording import file_error, plural
from fabmon.limited_thread import NO_ANSWER, START_S, in_thread
from fabmon.state_file import StateFile

_LOG = logging.getLogger("fabmon.session")
_RETRY_S = 10.0
"""Seconds until the file is tried again that could not be written, or is another process's."""
_MOST_WAIT_S = 1.0


class KeptFindings:
    """Keeps the findings that are open on the nodes of a cluster. A screen beside a service reads
    them, and keeps its own once the service has ended."""

    def __init__(self, cluster: str) -> None:
        self._file = StateFile(EarlierFinding, "findings", cluster)
        self._is_due = self._is_failing = False
        self._retry_s = 0.0
        self._saving: asyncio.Task[None] | None = None
        self._is_known = False
        self._reading: Future[list[EarlierFinding]] | None = None

    @property
    def is_known(self) -> bool:
        """Whether what the last run left open has been read."""
        return self._is_known

    def load(self) -> list[EarlierFinding]:
        """What the last run left open; nothing where its file system does not answer in START_S,
        which is logged: `arrived` then has it."""
        self._reading = in_thread(self._file.load)
        wait([self._reading], START_S)
        found = self.arrived()
        if not self._is_known and not self._is_failing:
            self._said(OSError(NO_ANSWER))
        return found

    def arrived(self) -> list[EarlierFinding]:
        """What the last run left open, where it has been read since the last call. Until then
        nothing is kept, which would replace it."""
        if self._reading is None:
            if not self._is_known and time.monotonic() >= self._retry_s:
                self._reading = in_thread(self._file.load)
            return []
        if not self._reading.done():
            return []
        reading, self._reading = self._reading, None
        try:
            found = reading.result()
        except OSError as error:
            self._retry_s = time.monotonic() + _RETRY_S
            if not self._is_failing:
                self._said(error)
            return []
        if self._is_failing:
            left = plural(len(found), "finding")
            _LOG.warning("%s: read: the last run left %s open", self._file.path, left)
        self._is_known, self._is_failing = True, False
        return found

    def _said(self, error: OSError) -> None:
        self._is_failing = True
        _LOG.warning(
            "%s: %s: open findings of the last run are not known, and those of this one are not"
            " kept until they are",
            self._file.path,
            file_error(error),
        )

    async def accept(self, scene: Scene) -> None:
        """Take a scene, and save what is open where that, or the clock, has changed: before it is
        sent, unless the file system takes longer than _MOST_WAIT_S. An error is logged once."""
        self._is_due |= bool(scene.changes or scene.snapshot.clock_jumped_ns)
        is_busy = self._saving is not None and not self._saving.done()
        if not self._is_known or is_busy or not self._is_due or time.monotonic() < self._retry_s:
            return
        self._is_due = False
        self._saving = asyncio.create_task(self._save(scene))
        await asyncio.wait([self._saving], timeout=_MOST_WAIT_S)

    async def _save(self, scene: Scene) -> None:
        try:
            is_saved = await asyncio.to_thread(self._write, scene)
        except OSError as error:
            is_saved = False
            if not self._is_failing:
                why = f"{self._file.path}: {file_error(error)}"
                _LOG.warning("%s: open findings are not known after a restart", why)
            self._is_failing = True
        else:
            self._is_failing = False
        if not is_saved:
            self._is_due, self._retry_s = True, time.monotonic() + _RETRY_S

    def close(self) -> None:
        """Let another process keep its findings."""
        self._file.release()

    def _write(self, scene: Scene) -> bool:
        """Whether this process keeps findings: no other one does."""
        if not self._file.acquire():
            return False
        self._file.save(kept_findings(scene))
        return True
