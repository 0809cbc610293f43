"""Files of which only those that were read last are open: a directory may hold thousands."""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

MOST_OPEN = 16
"""Files of one timeline that are open, each with some decoded blocks and hellos, up to 40 MB.
Several timelines are read at once, within the usual limit of 256 open files of small systems."""


class OpenFiles:
    """Opens files when they are read, and closes those that were not read for longest."""

    def __init__(self, most: int = MOST_OPEN) -> None:
        self._most = most
        self._lock = threading.RLock()
        self._fds: OrderedDict[SourceFile, int] = OrderedDict()

    def read(self, file: SourceFile, offset: int, length: int) -> bytes:
        """Bytes of a file, fewer at its end. Raises OSError where it cannot be opened again."""
        with self._lock:
            if file not in self._fds:
                self._fds[file] = file.open()
            self._fds.move_to_end(file)
            data = os.pread(self._fds[file], length, offset)
            idle = [each for each in self._fds if not each.pins and each is not file]
            for each in idle[: len(self._fds) - self._most]:
                self.close(each)
        return data

    def close(self, file: SourceFile) -> None:
        """Close a file until it is read again."""
        with self._lock:
            fd = self._fds.pop(file, None)
            if fd is not None:
                os.close(fd)
                file.on_idle()

    @contextmanager
    def pinned(self, file: SourceFile) -> Iterator[None]:
        """See SourceFile.pinned."""
        with self._lock:
            file.pins += 1
        try:
            yield
        finally:
            with self._lock:
                file.pins -= 1


class SourceFile:
    """One file. Raises OSError where there is none.

    `on_idle` is called when it is closed because others are read. `pins` are the threads that must
    not lose what was read of it. When it is gone, replaced by another one or not readable any more,
    it reads as empty.
    """

    def __init__(self, path: Path, among: OpenFiles) -> None:
        self.path = path
        self.pins = 0
        self.on_idle: Callable[[], object] = lambda: None
        self.status = path.stat()
        self._among = among

    def open(self) -> int:
        """A descriptor of the file. Raises OSError, also where the path is another file by now."""
        # O_NONBLOCK: opening a FIFO without a writer would block.
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not os.path.samestat(os.fstat(fd), self.status):
            os.close(fd)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
        return fd

    def read(self, offset: int, length: int) -> bytes:
        """Bytes from an offset on; fewer at the end of the file."""
        try:
            return self._among.read(self, offset, length)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            return b""

    def size(self) -> int:
        """The length now; of a file that is gone, the last one known."""
        with suppress(OSError):
            status = self.path.stat()
            if os.path.samestat(status, self.status):
                self.status = status
        return self.status.st_size

    def pinned(self) -> AbstractContextManager[None]:
        """Keep what is read of the file meanwhile, whichever others are read by other threads."""
        return self._among.pinned(self)

    def close(self) -> None:
        """Close the file."""
        self._among.close(self)
