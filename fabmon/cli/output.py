"""Where something is written to: a new file, or standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fabmon.session.errors import OutputError, UsageError


@contextmanager
def output(path: Path | None) -> Iterator[IO[bytes]]:
    """A file that must not be there yet, or standard output without a path.

    What could not be finished is removed. Raises UsageError where the file cannot be made, and
    OutputError where it cannot be written; a reader of standard output that leaves ends it all.
    """
    if path is None:
        with _standard_output() as stream:
            yield stream
        return
    try:
        stream = path.open("xb")
    except FileExistsError:
        raise UsageError(f"{path}: there is such a file already") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    try:
        with stream:
            yield stream
    except OSError as error:
        path.unlink(missing_ok=True)
        raise OutputError(f"{path}: {error.strerror or error}") from None
    except BaseException:
        path.unlink(missing_ok=True)
        raise


@contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    if sys.stdout is None:
        raise UsageError("standard output is closed: name a file with -o")
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        # What is left in the buffer would be tried again, and fail again, as Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise OutputError(f"standard output: {error.strerror}") from None
