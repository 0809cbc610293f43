"""Reads the files of a job, plain, gzip, or standard input: logs in blocks of whole lines, dumps of
PyTorch's Flight Recorder whole."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

from fabmon.analysis.flight_recorder.dumps import Dump, is_dump, read_dump
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.job_log.line_filter import MAX_PIECE
from fabmon.fabric.input_files import open_stream
from fabmon.fabric.wire.messages import printable
from fabmon.fabric.wording import byte_count, file_error
from fabmon.session.errors import UsageError
from fabmon.session.file_kinds import is_prose, other_kind
from fabmon.session.printing import progress

STDIN = Path("-")

_BLOCK_BYTES = 1 << 20
_MAX_BUFFERED = 4 * _BLOCK_BYTES
"""A line that is longer is read in parts, which overlap."""
_MOST_DUMP_BYTES = 1 << 26
"""A dump is read whole. One of 2000 collectives with 20 frames each has 4 MB."""
_MOST_NAMED = 3
_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31


@dataclass(frozen=True, slots=True)
class JobFiles:
    """What the files of a job say: its `log`, the `dumps` of PyTorch's Flight Recorder among them,
    and a note for each file that could not be read to its end. `sources` are the names of logs and
    dumps, without texts for people."""

    sources: list[str]
    log: JobLog
    dumps: list[Dump]
    notes: list[str]


def read_files(paths: Sequence[Path], redact: bool = False) -> JobFiles:
    """What some files of a job say. With `redact` notes have no names of files.

    Shows a progress bar. Raises UsageError for a file that cannot be opened or is of another kind:
    nothing is understood of it, and "no failure" would be said of it. Of a text for people, such as
    a README beside logs, nothing is read, which is a note.
    """
    log, notes = JobLog(), list[str]()
    dumps: list[Dump] = []
    sources, prose, silent = list[str](), list[str](), list[str]()
    total = sum(_size(path) for path in paths)
    done = 0
    with progress("reading", total) as report:
        for number, path in enumerate(paths, 1):
            name = log_name(path)
            sources.append(name)
            noted = f"log {len(sources)}" if redact else name

            def count(read: int) -> None:
                nonlocal done
                done += read
                report(done)

            try:
                with (
                    nullcontext(sys.stdin.buffer) if path == STDIN else open_stream(path) as stream
                ):
                    blocks = decompressed(stream, count)
                    first = next(blocks, b"")
                    if is_dump(first):
                        dumps.append(_dump(first, blocks, name))
                        continue
                    rest = [next(blocks, b"")] if is_prose(first) else []
                    if rest == [b""] and (_is_document(path) or not _is_copied(first, name)):
                        sources.pop()
                        prose.append(f"file {number}" if redact else name)
                        continue
                    for block in whole_lines(_texts(chain((first, *rest), blocks), name)):
                        log.accept(block, name)
                    if not log.has_line_of_job(name):
                        silent.append(noted)
            except OSError as error:
                raise UsageError(f"{name}: {file_error(error)}") from None
            except zlib.error as error:
                notes.append(f"{noted}: not read to its end: invalid gzip: {error}")
            except EOFError:
                notes.append(f"{noted}: the compressed file is truncated: read as far as it goes")
    if prose and len(prose) == len(paths):
        raise UsageError(f"{_some(prose)}: no log, but a text for people: give the log of the job")
    if prose:
        notes.append(f"no log, but a text for people, and not read: {_some(prose)}")
    if silent:
        notes.append(f"no line of NCCL, PyTorch or a launcher: {_some(silent)}")
    return JobFiles(sources, log, dumps, notes)


def _is_document(path: Path) -> bool:
    """Whether a text for people is one by its name too: it may quote the lines of a log."""
    return path.stem.upper() == "README" or path.suffix == ".md"


def _is_copied(text: bytes, name: str) -> bool:
    """Whether sentences are a message of a log that was copied without what was before it: lines of
    a job, all of which are understood."""
    log = JobLog()
    for block in whole_lines(iter((text,))):
        log.accept(block, name)
    return log.has_line_of_job(name) and not log.unread_lines


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def _dump(first: bytes, blocks: Iterator[bytes], name: str) -> Dump:
    data = bytearray(first)
    try:
        for block in blocks:
            data += block
            if len(data) > _MOST_DUMP_BYTES:
                return Dump(name, -1, error=f"it is larger than {byte_count(_MOST_DUMP_BYTES)}")
    except (EOFError, zlib.error):
        return Dump(name, -1, error="the compressed file is truncated or invalid")
    return read_dump(bytes(data), name)


def _size(path: Path) -> int:
    try:
        return 0 if path == STDIN else path.stat().st_size
    except OSError:
        return 0


def log_name(path: Path) -> str:
    """What a log is called in all that is said of it."""
    return "standard input" if path == STDIN else printable(str(path))


def _texts(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """The blocks of a log. Raises UsageError where they begin as of another kind of file."""
    for number, block in enumerate(blocks):
        kind = "" if number else other_kind(block)
        if kind:
            raise UsageError(f"{name}: no log, but {kind}")
        yield block


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
