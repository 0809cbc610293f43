"""How frames are written: plain, or as deltas in one deflate stream.

`delta-deflate` makes a frame a third as large as `plain` with few counters moving. A line is still
a line of JSON: `["packed", BASE64]`, whose bytes continue a raw deflate stream that began with the
hello. Inflated, it is the frame as `[seq, wall_ns, mono_ns, [block, ...]]` with every number less
the one before it (`seq` apart), absent ones before counting as 0.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from operator import sub
from typing import Callable, Dict, List, Optional, Sequence

from collectors import wire
from collectors.wire import Block

_LEVEL = 1

Encode = Callable[[int, int, int, Sequence[Block]], bytes]
"""seq, wall_ns, mono_ns and blocks of a frame -> its line."""


class Packer:
    """Writes the frames that follow one hello."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, -wire.WINDOW_BITS)
        self._wall_ns = 0
        self._mono_ns = 0
        self._before: List[List[int]] = []

    def frame(self, seq: int, wall_ns: int, mono_ns: int, blocks: Sequence[Block]) -> bytes:
        """The line of one tick."""
        if not self._before:
            self._before = [[] for _ in blocks]
        deltas = [self._deltas(place, block) for place, block in enumerate(blocks)]
        text = wire.dump([seq, wall_ns - self._wall_ns, mono_ns - self._mono_ns, deltas])
        self._wall_ns, self._mono_ns = wall_ns, mono_ns
        packed = self._stream.compress(text) + self._stream.flush(zlib.Z_SYNC_FLUSH)
        return b'["packed","%s"]\n' % b64encode(packed)

    def _deltas(self, place: int, block: Block) -> Block:
        if block is None:
            return None
        before = self._before[place] or [0] * len(block)
        deltas: List[Optional[int]]
        try:
            deltas = list(map(sub, block, before))
            self._before[place] = block  # type: ignore[assignment]
        except TypeError:
            deltas = list(map(_less, block, before))
            self._before[place] = [new or 0 for new in block]
        return deltas


_ENCODINGS: Dict[str, Callable[[], Encode]] = {
    "delta-deflate": lambda: Packer().frame,
    wire.PLAIN: lambda: wire.frame,
}


def _less(new: Optional[int], old: int) -> Optional[int]:
    return None if new is None else new - old


def choose(understood: Sequence[str]) -> str:
    """The first encoding of a console's list that this probe can write, else `plain`."""
    return next((name for name in understood if name in _ENCODINGS), wire.PLAIN)


def encoder(encoding: str) -> Encode:
    """Something that writes the frames after one hello. Raises KeyError."""
    return _ENCODINGS[encoding]()
