"""`fabmon watch --page DIR`: the report page of the last hour, written anew every minute."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shlex
import time
from pathlib import Path

from fabmon import __version__
from fabmon.analysis.scene import Scene
from fabmon.error_log import log_path
from fabmon.fabric.time_wording import SECOND_NS
from fabmon.fabric.wording import file_error
from fabmon.limited_thread import START_S, call_within
from fabmon.private_files import (
    check_private,
    check_writable,
    make_directory,
    open_own,
    replace_file,
)
from fabmon.report.page.digest import Bins, Digest
from fabmon.report.page.page import ReportSource, page
from fabmon.session.errors import UsageError, cannot_write

EVERY_S = 60
_LAST_PAGE_S = 2.0
_SHOWN_S = 3600
_BIN_S = 30.0
_LOG = logging.getLogger("fabmon.page")


class LivePage:
    """Takes scenes and writes `index.html` into a directory, in a thread: at the first scene with
    rates, then every minute.

    The page is complete at any time: a new one takes the place of the last. A new file may be read
    by its owner alone; where there is one already, those who may read it still may.
    """

    def __init__(self, directory: Path, title: str) -> None:
        """Raises UsageError for a directory that cannot be written to, or has another's page."""
        self._lock = _locked(directory)
        self._path = directory / "index.html"
        self._title = title
        self._digest: Digest | None = None
        self._due_s = 0.0
        self._writing: asyncio.Task[None] | None = None
        self._is_failing = False
        try:
            call_within(START_S, check_writable, directory)
        except FileNotFoundError:
            made = f"make it first: mkdir -p {shlex.quote(str(directory))}"
            raise UsageError(f"--page {directory}: no such directory; {made}") from None
        except OSError as error:
            raise cannot_write(directory, error) from None
        try:
            check_private(directory.resolve(), directory.resolve())
        except PermissionError as error:
            text = "--page: %s: %s; until then others can replace the page"
            _LOG.warning(text, error.filename, file_error(error))

    def take(self, scene: Scene) -> None:
        """Take a scene; write the page where that is due."""
        now_ns, interval_s = scene.snapshot.time_ns, scene.snapshot.interval_s
        if self._digest is not None:
            self._digest.follow_clock(scene.snapshot.clock_jumped_ns)
        late = 0 if self._digest is None else self._digest.bins.after_last(now_ns)
        if self._digest is None or abs(late) >= self._digest.bins.count:
            from_ns = now_ns - _SHOWN_S * SECOND_NS
            self._digest = Digest.empty(Bins(from_ns, now_ns, interval_s, _BIN_S))
        elif late > 0:
            self._digest.move(late)
        self._digest.add(scene)
        is_due = self._digest.ticks > 1 and time.monotonic() >= self._due_s
        is_free = self._writing is None or self._writing.done()
        if is_due and not is_free and not self._is_failing:
            self._is_failing = True
            text = "--page: %s: not written in %d s: does its file system answer?"
            _LOG.warning(text, self._path, EVERY_S)
        if is_due and is_free:
            self._due_s = time.monotonic() + EVERY_S
            made = self._digest.copy()
            made.ticks = min(made.ticks, round(_SHOWN_S / scene.snapshot.interval_s))
            self._writing = asyncio.create_task(asyncio.to_thread(self._write, made))

    async def close(self) -> None:
        """Wait 2 s for the page that is being written; another watch may then write there."""
        if self._writing is not None:
            _, pending = await asyncio.wait([self._writing], timeout=_LAST_PAGE_S)
            if pending:
                return
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _write(self, made: Digest) -> None:
        source = ReportSource("", 0, f"fabmon {__version__}", "", self._title, ())
        try:
            data = page(made, [source], None, EVERY_S).encode()
            replace_file(self._path, data, keeps_mode=True)
        except OSError as error:
            if not self._is_failing:
                _LOG.warning("--page: %s: %s", self._path, file_error(error))
            self._is_failing = True
            return
        if self._is_failing:
            _LOG.warning("--page: %s: written again", self._path)
        self._is_failing = False


def _locked(directory: Path) -> int | None:
    """A file of this user, open and locked for this process: two watches of one user would replace
    each other's page. Others cannot lock it.

    None where there is no such directory, or no locks. Raises UsageError where another watch has
    it.
    """

    def opened() -> int:
        found, place = directory.stat(), log_path().parent / "pages"
        make_directory(place)
        return open_own(place / f"{found.st_dev}-{found.st_ino}.lock", os.O_CREAT | os.O_RDWR)

    try:
        lock = call_within(START_S, opened)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if isinstance(error, BlockingIOError):
            text = f"--page {directory}: another watch writes its page there: name another"
            raise UsageError(text) from None
        return None
    return lock
