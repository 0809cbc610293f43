"""Which lines of a log are parsed: lines that differ in digits only are read up to a limit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

MAX_PIECE = 4096
"""Bytes of a line that are read at a time."""
_OVERLAP = 1024
"""Bytes that two pieces of a line have in common: no message of interest is longer."""
_ESCAPED_END = re.compile(rb"\\[rn]")
"""The end of a line in a log that is in JSON, or in the text of an exception."""
_CHANNEL = b"NCCL INFO Channel"
_DECIMAL = b"0123456789"
_DIGITS = b"0123456789abcdefABCDEF"

_MOST_ALIKE = 100_000
_MOST_SHAPES = 50_000
_MOST_CHANNELS = 200_000


class LineFilter:
    """Drops lines that say nothing new, before they are decoded; `not_parsed` counts those of which
    that is not known."""

    def __init__(self) -> None:
        self.not_parsed = 0
        self._alike: Counter[int] = Counter()
        self._useless: set[int] = set()
        self._channels: set[int] = set()

    def is_useful(self, line: bytes, is_open: bool) -> bool:
        """Whether a line with a mark is to be parsed. `is_open`: it may belong to lines before."""
        at = line.find(_CHANNEL)
        if at >= 0:
            return self._is_new_channel(line, at)
        if hash(line.translate(None, _DECIMAL)) in self._useless and not is_open:
            return False
        shape = hash(line[:MAX_PIECE].translate(None, _DIGITS))
        count = self._alike[shape]
        if count >= _MOST_ALIKE or (not count and len(self._alike) >= _MOST_SHAPES):
            self.not_parsed += 1
            return False
        self._alike[shape] = count + 1
        return True

    def _is_new_channel(self, line: bytes, at: int) -> bool:
        if b"NET/" not in line:
            return False
        # The same two ranks have many channels: their numbers do not matter.
        ranks = line.find(b" : ", at)
        key = hash((line[max(0, at - 80) : at], line[ranks : ranks + 120]))
        if key in self._channels or len(self._channels) >= _MOST_CHANNELS:
            return False
        self._channels.add(key)
        return True

    def was_useless(self, line: bytes) -> None:
        """Nothing is on a line: those that differ from it in digits only are not parsed."""
        if len(self._useless) < _MOST_SHAPES:
            self._useless.add(hash(line.translate(None, _DECIMAL)))


def pieces(line: bytes) -> Iterator[bytes]:
    """The pieces of a line that are read by themselves: a long line in pieces that overlap."""
    for part in _ESCAPED_END.split(line) if b"\\" in line else (line,):
        for start in range(0, max(1, len(part) - _OVERLAP), MAX_PIECE - _OVERLAP):
            yield part[start : start + MAX_PIECE]
