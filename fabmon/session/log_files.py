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
from fabmon.recording.format.frames import MAGIC
from fabmon.session.errors import UsageError
from fabmon.session.printing import progress

STDIN = Path("-")

_BLOCK_BYTES = 1 << 20
_MAX_BUFFERED = 4 * _BLOCK_BYTES
"""A line that is longer is read in parts, which overlap."""
_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31
_OTHER_KINDS = (
    (b"\x28\xb5\x2f\xfd", "compressed with zstd: zstd -dc FILE | fabmon explain -"),
    (b"\xfd7zXZ\0", "compressed with xz: xz -dc FILE | fabmon explain -"),
    (b"BZh", "compressed with bzip2: bzip2 -dc FILE | fabmon explain -"),
    (b"PK\3\4", "a zip archive: unzip -p FILE | fabmon explain -"),
    (MAGIC, "a recording: give the log of the job, and this with --recording"),
    *(
        (b"\x80" + bytes([protocol]), "a pickle, as of PyTorch's flight recorder: see torchfrtrace")
        for protocol in range(2, 6)
    ),
)
_SAMPLE_BYTES = 1 << 16
_CONTROLS = "\t\n\v\f\r\a\b\x1b"
"""Of texts and terminals: a progress bar may be half of backspaces."""
_MOST_GARBLED = 0.3
"""Share of characters that are controls or no UTF-8, up to which a file is a text: of compressed
and other binary files about half are; of logs, one in another encoding included, a few."""


def read_logs(paths: Sequence[Path]) -> tuple[JobLog, list[str]]:
    """What some logs say, and a note for each that could not be read to its end.

    Shows a progress bar. Raises UsageError for a file that cannot be opened or is no text: nothing
    is understood of it, and "no failure" would be said of it.
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
                    for block in whole_lines(_texts(decompressed(stream, count), name)):
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


def _texts(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The blocks of a text. Raises UsageError where they begin as of another kind of file."""
    for number, block in enumerate(blocks):
        kind = "" if number else _other_kind(block)
        if kind:
            raise UsageError(f"{name}: no log, but {kind}")
        yield block


def _other_kind(block: bytes) -> str:
    """What a file is that begins so, with what to do; empty for a text. A text may have NULs: where
    a log was truncated while it was written, its beginning is a hole."""
    for begin, kind in _OTHER_KINDS:
        if block.startswith(begin):
            return kind
    text = block[:_SAMPLE_BYTES].replace(b"\0", b"").decode("utf-8", "replace")
    garbled = sum(each == "\ufffd" or (each < " " and each not in _CONTROLS) for each in text)
    return "a binary file" if garbled > _MOST_GARBLED * len(text) else ""


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
