"""Lists that outlive a process, in private files of the user's state directory."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import stat
from collections.abc import Iterable
from typing import Generic, TypeVar

import msgspec

from fabmon.error_log import log_path
from fabmon.malformed_json import MALFORMED
from fabmon.private_files import check_state, make_directory, open_own, replace_file

T = TypeVar("T")

_LOG = logging.getLogger("fabmon.state")
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])

MOST_BYTES = 16 << 20
"""What is read and written at most: some thousand findings with everything that they slow."""


class StateFile(Generic[T]):
    """Items in `$XDG_STATE_HOME/fabmon/FOLDER`, in a file of some names. All methods block.

    One process at a time has it: a screen beside a service sends no second message.
    """

    def __init__(self, kind: type[T], folder: str, *names: str) -> None:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", "-".join(names))[:80]
        unique = hashlib.sha256("\0".join(names).encode()).hexdigest()[:8]
        self.path = log_path().parent / folder / f"{name}-{unique}.json"
        self._decoder = msgspec.json.Decoder(kind)
        self._lock: int | None = None
        self._is_cut = False

    def acquire(self) -> bool:
        """Whether this process has it now. Raises OSError."""
        if self._lock is None:
            make_directory(self.path.parent)
            check_state(self.path.parent)
            lock = open_own(self.path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                return False
            self._lock = lock
        return True

    def load(self) -> list[T]:
        """What was saved last; nothing if there is no file, or if it is damaged, too long or could
        be another user's, which is logged. An item that is invalid costs itself. Raises OSError
        where its file system fails: what was saved may still be there."""
        try:
            found = _ITEMS.decode(self._read())
        except FileNotFoundError:
            return []
        except (PermissionError, IsADirectoryError, *MALFORMED) as error:
            why = error.strerror if isinstance(error, OSError) else None
            _LOG.warning("%s is not read: %s", self.path, why or error)
            return []
        items, trouble = list[T](), ""
        for each in found:
            try:
                items.append(self._decoder.decode(each))
            except MALFORMED as error:
                trouble = str(error)
        if trouble:
            left_out = len(found) - len(items)
            _LOG.warning("%s: %d of %d are not read: %s", self.path, left_out, len(found), trouble)
        return items

    def _read(self) -> bytes:
        check_state(self.path.parent)
        with os.fdopen(open_own(self.path, os.O_RDONLY), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
                raise PermissionError(None, "it is no file that fabmon wrote")
            if found.st_mode & 0o022:
                raise PermissionError(None, "another user may have written it")
            return file.read(MOST_BYTES)

    def save(self, items: Iterable[T]) -> None:
        """Replace the file: a process that is killed meanwhile leaves the old one. Of more than
        fits, the first are kept, which is logged once. Raises OSError."""
        kept, room, is_cut = list[bytes](), MOST_BYTES - 2, False
        for item in map(msgspec.json.encode, items):
            room -= len(item) + 1
            if room < 0:
                is_cut = True
                break
            kept.append(item)
        if is_cut and not self._is_cut:
            _LOG.warning("%s: only the first %d are kept", self.path, len(kept))
        self._is_cut = is_cut
        replace_file(self.path, b"[" + b",".join(kept) + b"]")

    def release(self) -> None:
        """Let another process have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
