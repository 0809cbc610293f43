"""Reads files that a user names, which may be the output of a command: `<(command)` is a pipe."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

_WAIT_S = 10.0
_CHUNK_BYTES = 1 << 20
_MOST_SHOWN = 100
"""Problems that a message has: a file of another kind has one in every line."""


def problem_lines(filename: str, problems: Sequence[str]) -> str:
    """The problems of a file, a line each: the first ones, and how many more there are."""
    more = len(problems) - _MOST_SHOWN
    rest = [f"{filename}: {more} more problems"] if more > 0 else []
    return "\n".join([*problems[:_MOST_SHOWN], *rest])


def open_stream(path: Path) -> IO[bytes]:
    """A file or pipe to read as far as it goes; a pipe without a writer is empty.

    Raises OSError, also for a directory and for a device, which may have no end.
    """
    fd = _open(path)
    mode = os.fstat(fd).st_mode
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "a device: name a file or a pipe", str(path))
    os.set_blocking(fd, True)
    return os.fdopen(fd, "rb")


def _open(path: Path) -> int:
    """A descriptor of what is no directory. Raises OSError."""
    # O_NONBLOCK: opening a named pipe would otherwise wait for a writer.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.close(fd)
        raise IsADirectoryError(errno.EISDIR, "a directory: name the files in it", str(path))
    return fd


def read_input(
    path: Path,
    max_bytes: int,
    wait_s: float = _WAIT_S,
    names_commands: Callable[[bytes], bool] = lambda data: False,
) -> bytes:
    """The content of a file or pipe.

    A pipe is read to its end; one without a writer is empty. Raises OSError, also for a
    directory, for more than `max_bytes`, where a pipe has not ended after `wait_s`, and for a file
    that everyone can write to, if what it holds `names_commands` that fabmon runs as its user, or
    secrets of the user.
    """
    fd = _open(path)
    try:
        mode = os.fstat(fd).st_mode
        until_s = time.monotonic() + wait_s
        readable = select.poll()  # select() refuses descriptors above 1,023
        readable.register(fd, select.POLLIN)
        data = bytearray()
        while len(data) <= max_bytes:
            try:
                chunk = os.read(fd, min(_CHUNK_BYTES, max_bytes + 1 - len(data)))
            except BlockingIOError:
                left_s = max(0.0, until_s - time.monotonic())
                if readable.poll(left_s * 1000):
                    continue
                text = f"the pipe did not end within {wait_s:g} s"
                raise TimeoutError(errno.ETIMEDOUT, text, str(path)) from None
            if not chunk:
                content = bytes(data)
                if stat.S_ISREG(mode) and mode & stat.S_IWOTH and names_commands(content):
                    what = "commands and files of secrets"
                    text = f"everyone can write to it, and it can name {what}: chmod o-w {path}"
                    raise PermissionError(errno.EACCES, text, str(path))
                return content
            data += chunk
        raise OSError(errno.EFBIG, f"more than {max_bytes >> 20} MiB", str(path))
    finally:
        os.close(fd)
