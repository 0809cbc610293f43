"""The open findings of a watch, kept in its state directory: a watch that is killed and started
again takes them up."""

from __future__ import annotations

import asyncio
import logging
import time

from fabmon.analysis.earlier_findings import EarlierFinding, kept_findings
from fabmon.analysis.scene import Scene
from fabmon.fabric.wording import file_error
from fabmon.state_file import StateFile

_LOG = logging.getLogger("fabmon.session")
_LOCK_RETRY_S = 10.0


class KeptFindings:
    """Keeps the findings that are open on the nodes of a cluster. A screen beside a service reads
    them, and keeps its own once the service has ended."""

    def __init__(self, cluster: str) -> None:
        self._file = StateFile(EarlierFinding, "findings", cluster)
        self._is_due = self._is_failing = False
        self._retry_s = 0.0

    def load(self) -> list[EarlierFinding]:
        """What the last run left open."""
        return self._file.load()

    async def accept(self, scene: Scene) -> None:
        """Take a scene, and save what is open where that has changed. An error is logged once."""
        self._is_due |= bool(scene.changes)
        if not self._is_due or time.monotonic() < self._retry_s:
            return
        try:
            self._is_due = not await asyncio.to_thread(self._save, scene)
        except OSError as error:
            if not self._is_failing:
                why = f"{self._file.path}: {file_error(error)}"
                _LOG.warning("%s: open findings are not known after a restart", why)
            self._is_failing = True
        else:
            self._is_failing = False
        self._retry_s = time.monotonic() + _LOCK_RETRY_S if self._is_due else 0.0

    def close(self) -> None:
        """Let another process keep its findings."""
        self._file.release()

    def _save(self, scene: Scene) -> bool:
        """Whether this process keeps findings: no other one does."""
        if not self._file.acquire():
            return False
        self._file.save(kept_findings(scene))
        return True
