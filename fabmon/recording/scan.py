"""Finds the frames of a file: by its index where it has one, else from header to header.

Whatever is no frame is passed over to the next one that is, and told as a loss.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from fabmon.recording import index
from fabmon.recording.errors import Damaged
from fabmon.recording.frames import HEADER_BYTES, MAGIC, Header, Kind, header, sound
from fabmon.recording.index import Entry

_CHUNK = 1 << 20


Told = Callable[[float], None]
"""Is told how far a file has been read, in bytes."""


def nobody(_: float) -> None:
    """For what need not be told."""


class Loss(NamedTuple):
    """Bytes of a file that hold no frame any more, and what is known of them."""

    at: int
    end: int
    text: str


class File:
    """A recording's bytes, read where they are asked for."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def size(self) -> int:
        """Bytes there are now."""
        return os.fstat(self._fd).st_size

    def read(self, at: int, length: int) -> bytes:
        """As many bytes as there are."""
        return os.pread(self._fd, length, at)

    def may_be_ours(self) -> bool:
        """Whether anything in its first MiB looks like a frame."""
        return MAGIC in self.read(0, _CHUNK)

    def header(self, at: int) -> Header | None:
        """The header at a place; None when there is no sound one."""
        return header(self.read(at, HEADER_BYTES))

    def payload(self, entry: Entry) -> bytes:
        """A frame's payload. Raises Damaged, with the place."""
        data = self.read(entry.at + HEADER_BYTES, entry.header.length)
        if not sound(entry.header, data):
            raise Damaged(f"byte {entry.at}: a frame ({entry.header.kind}) that is damaged")
        return data

    def next_frame(self, at: int, stop: int, told: Told) -> int:
        """Where the next sound header is, from a place on; `stop` when there is none."""
        while at < stop:
            told(at)
            data = self.read(at, _CHUNK + HEADER_BYTES)
            found = data.find(MAGIC)
            while found >= 0:
                if header(data, found) is not None:
                    return min(at + found, stop)
                found = data.find(MAGIC, found + 1)
            if len(data) <= HEADER_BYTES:
                return stop
            at += len(data) - HEADER_BYTES
        return stop

    def last_frame(self, stop: int) -> int | None:
        """Where the last sound header before a place is; None when there is none."""
        end = stop
        while end > 0:
            start = max(0, end - _CHUNK)
            data = self.read(start, end - start + HEADER_BYTES)
            found = data.rfind(MAGIC, 0, end - start + len(MAGIC) - 1)
            while found >= 0:
                if header(data, found) is not None:
                    return start + found
                found = data.rfind(MAGIC, 0, found + len(MAGIC) - 1)
            end = start
        return None


class Walk:
    """Goes from header to header; `losses` are what lay between, `at` is where it stands."""

    def __init__(self, file: File, at: int, stop: int, told: Told) -> None:
        self.at = at
        self.losses: list[Loss] = []
        self._file = file
        self._stop = stop
        self._told = told

    def __iter__(self) -> Iterator[Entry]:
        while self.at < self._stop:
            self._told(self.at)
            found = self._file.header(self.at)
            if found is None:
                self._pass_over("no frame begins here")
                continue
            entry = Entry(self.at, found)
            if entry.end > self._stop:
                # Cut off, or not all written yet: a frame may still follow if its length lies.
                self._pass_over(f"a frame ({found.kind}) that is not all there")
                continue
            self.at = entry.end
            yield entry

    def _pass_over(self, text: str) -> None:
        start = self.at
        self.at = self._file.next_frame(start + 1, self._stop, self._told)
        self.losses.append(Loss(start, self.at, text))


def indexed(file: File, size: int) -> tuple[list[Entry], list[tuple[int, int]]]:
    """Frames that the indices list, and the ranges that none covers, both in the file's order."""
    last = file.last_frame(size)
    found = file.header(last) if last is not None else None
    at = 0
    if found is not None and last is not None:
        at = last if found.kind == Kind.INDEX else found.index_at
    lists: list[tuple[int, int, list[Entry]]] = []
    seen: set[int] = set()
    while at and at not in seen:
        seen.add(at)
        head = file.header(at)
        if head is None or head.kind != Kind.INDEX:
            break
        own = Entry(at, head)
        try:
            start, entries = index.decode(file.payload(own))
        except Damaged:
            pass
        else:
            lists.append((start, own.end, [*entries, own]))
        at = head.index_at
    gaps, entries, covered = [], [], 0
    for start, end, listed in reversed(lists):
        if start > covered:
            gaps.append((covered, start))
        entries += listed
        covered = max(covered, end)
    if covered < size:
        gaps.append((covered, size))
    return entries, gaps
