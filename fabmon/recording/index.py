"""Index frames: where every frame lies, so that opening and seeking never read them all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fabmon.recording import columns
from fabmon.recording.errors import Damaged
from fabmon.recording.frames import HEADER_BYTES, Header

_ENTRY = np.dtype(
    [("at", "<u8"), ("length", "<u4"), ("crc", "<u4"), ("kind", "S1"), ("part", "<u2"),
     ("time", "<i8"), ("until", "<i8"), ("worst", "<f4")]
)  # fmt: skip


class Entry(NamedTuple):
    """A frame and where it is; `worst` is the highest utilisation in it, NaN where not known."""

    at: int
    header: Header
    worst: float = float("nan")

    @property
    def end(self) -> int:
        """Where the next frame begins."""
        return self.at + HEADER_BYTES + self.header.length


def encode(entries: Iterable[Entry], start: int) -> bytes:
    """An index frame's payload: all frames from the place `start` of the file on."""
    rows = [
        (e.at, e.header.length, e.header.crc, e.header.kind.encode("latin-1"), e.header.part,
         e.header.time_ns, e.header.until_ns, e.worst)
        for e in entries
    ]  # fmt: skip
    table = np.array(rows, _ENTRY)
    turned = table.view(np.uint8).reshape(-1, _ENTRY.itemsize).T
    return columns.joined([start.to_bytes(8, "little"), columns.pack(turned)])


def decode(payload: bytes) -> tuple[int, list[Entry]]:
    """Where the frames that it lists begin, and they. Raises Damaged."""
    sections = columns.split(payload)
    if len(sections) < 2:
        raise Damaged("an index without entries")
    data = np.frombuffer(columns.unpack(sections[1]), np.uint8)
    if len(data) % _ENTRY.itemsize:
        raise Damaged("an index of half an entry")
    table = np.ascontiguousarray(data.reshape(_ENTRY.itemsize, -1).T).view(_ENTRY).ravel()
    rows: list[Any] = table.tolist()
    entries = [
        Entry(at, Header(kind.decode("latin-1"), 0, part, length, crc, time, until, 0), worst)
        for at, length, crc, kind, part, time, until, worst in rows
    ]
    return int.from_bytes(sections[0], "little"), entries
