"""Reads logs of jobs in blocks of whole lines: plain, gzip, or standard input."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO

from fabmon.analysis.job_log.job_log import MAX_PIECE, JobLog
from fabmon.fabric.input_files import open_stream
from fabmon.fabric.wire.messages import printable
from fabmon.fabric.wording import file_error
from fabmon.session.errors import UsageError
from fabmon.session.printing import progress

STDIN = Path("-")

_BLOCK_BYTES = 1 << 20
_MAX_BUFFERED = 4 * _BLOCK_BYTES
"""A line that is longer is read in parts, which overlap."""
_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31


def read_logs(paths: Sequence[Path]) -> tuple[JobLog, list[str]]:
    """What some logs say, and a note for each that could not be read to its end.

    Shows a progress bar. Raises UsageError for a file that cannot be opened.
    """
    log, notes = JobLog(), []
    total = sum(_size(path) for path in paths)
    done = 0
    with progress("reading", total) as report:
        for path in paths:
            name = log_name(path)

            def count(read: int) -> None:
                nonlocal done
                done += read
                report(done)

            try:
                with (
                    nullcontext(sys.stdin.buffer) if path == STDIN else open_stream(path) as stream
                ):
                    for block in whole_lines(decompressed(stream, count)):
                        log.accept(block, name)
            except OSError as error:
                raise UsageError(f"{name}: {file_error(error)}") from None
            except zlib.error as error:
                notes.append(f"{name}: not read to its end: invalid gzip: {error}")
            except EOFError:
                notes.append(f"{name}: the compressed file is truncated: read as far as it goes")
    return log, notes


def _size(path: Path) -> int:
    try:
        return 0 if path == STDIN else path.stat().st_size
    except OSError:
        return 0


def log_name(path: Path) -> str:
    """What a log is called in all that is said of it."""
    return "standard input" if path == STDIN else printable(str(path))


def decompressed(stream: IO[bytes], count: Callable[[int], None]) -> Iterator[bytes]:
    """The content of a file, decompressed if it is gzip; `count` is called with the bytes read.

    Raises zlib.error for invalid gzip and EOFError for a truncated one, after what can be read.
    """
    block = stream.read(_BLOCK_BYTES)
    if not block.startswith(_GZIP):
        while block:
            count(len(block))
            yield block
            block = stream.read(_BLOCK_BYTES)
        return
    unzip = zlib.decompressobj(_GZIP_WINDOW)
    is_between = False
    while block:
        count(len(block))
        while block:
            yield unzip.decompress(block, _BLOCK_BYTES)
            block, is_between = unzip.unconsumed_tail, unzip.eof
            if unzip.eof:
                # Several gzip files, one after the other, are one file too.
                block = unzip.unused_data.lstrip(b"\0")
                unzip = zlib.decompressobj(_GZIP_WINDOW)
        block = stream.read(_BLOCK_BYTES)
    if not is_between:
        raise EOFError


def whole_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks that end at the end of a line, of which a carriage return is one; a very long line in
    parts that overlap."""
    rest = b""
    for block in blocks:
        rest += block
        end = max(rest.rfind(b"\n"), rest.rfind(b"\r"))
        if end >= 0:
            yield rest[:end]
            rest = rest[end + 1 :]
        if len(rest) > _MAX_BUFFERED:
            yield rest
            rest = rest[-MAX_PIECE:]
    if rest:
        yield rest
