"""What receivers that forget were sent, in a file: after a restart nothing is sent twice."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Sequence

import msgspec

from fabmon.alerts.alert import Alert
from fabmon.error_log import log_path
from fabmon.private_files import make_directory, open_own, replace_file

_DECODER = msgspec.json.Decoder(list[Alert])


class SentMemory:
    """The open alerts that a receiver has, in `$XDG_STATE_HOME/fabmon/alerts`. All methods block.

    One process at a time has it: a screen beside a service sends no second message.
    """

    def __init__(self, receiver: str, cluster: str) -> None:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{cluster}-{receiver}")[:80]
        unique = hashlib.sha256(f"{cluster}\0{receiver}".encode()).hexdigest()[:8]
        self.path = log_path().parent / "alerts" / f"{name}-{unique}.json"
        self._lock: int | None = None

    def acquire(self) -> bool:
        """Whether this process has it now. Raises OSError."""
        if self._lock is None:
            make_directory(self.path.parent)
            lock = open_own(self.path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                return False
            self._lock = lock
        return True

    def load(self) -> list[Alert]:
        """The open alerts of the last run; none if there is no file or it is damaged."""
        try:
            return _DECODER.decode(self.path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return []

    def save(self, alerts: Sequence[Alert]) -> None:
        """Replace the file. Raises OSError."""
        replace_file(self.path, msgspec.json.encode(alerts))

    def release(self) -> None:
        """Let another process have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
