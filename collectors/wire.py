"""The wire: the lines that a probe writes, one JSON array each. The only contract with the console.

docs/wire.md is the full description. In short:

    ["hello", {...}]                                    the node, and the layout of the frames
    ["frame", seq, wall_ns, mono_ns, [block, ...]]      one tick; one block per source, by position
    ["packed", base64]                                  one tick, packed: see FramePacker
    ["notice", {...}]                                   a source or a value was lost or recovered
    ["burst", {...}]                                    fast samples of some ports, on request
    ["trace", {...}]                                    the path of some flows, on request

A block is `[mono_ns, value, ...]`: the node's monotonic clock when it was read, then the values in
the hello's order, null for one that is absent. A block that was not read is null as a whole.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from base64 import b64encode
from operator import sub
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from collectors.catalog import CATALOG

VERSION = 1
"""Major version: a console refuses any other. Keys may be added without changing it."""

MAX_LINE = 8 * 1024 * 1024
"""Bytes of the longest line a console accepts: a hello of some 60,000 values."""

PLAIN = "plain"
"""The encoding that every probe and every console supports: values unchanged."""

WINDOW_BITS = 12
"""Packed frames: a deflate window of 4 KiB, since a console holds one for every node."""

LOGGED = "logged"
"""The event of a notice that reports something that happened, not a condition that lasts."""

Block = Optional[Sequence[Optional[int]]]


class Object(NamedTuple):
    """One thing a source reads: a port, or a fact about the node such as an ECMP group.

    `id` is unique within the source (`eth0`, `mlx5_0/1`). `port` is the name of the physical port
    that the values belong to, the same in every source of that port; None for what is not a port.
    `kind` is `ethernet`, `infiniband`, `gpu`, `nvlink`, `xgmi`, `ecmp`, `neighbour`, `addresses`,
    `queue_pairs`, `forwarding_tables` or `node`. `info` holds facts that are not counters (driver,
    PCI address, members ...), JSON values only. `metrics` are catalog names, in the order of the
    values. `node` names another node than this one when the object belongs to one, such as a switch
    that is read in band; its role is `info["node_role"]`.
    """

    id: str
    kind: str
    port: Optional[str]
    info: Dict[str, Any]
    metrics: Tuple[str, ...]
    node: Optional[str] = None


class BlockLayout:
    """The layout of one source's block: its objects in order; it is read every `every` ticks."""

    def __init__(self, source: str, every: int, objects: Sequence[Object]) -> None:
        self.source = source
        self.every = every
        self.objects = tuple(objects)
        self.has_values = any(item.metrics for item in self.objects)

    def describe(self) -> Dict[str, Any]:
        """The block as it is written in the hello."""
        return {
            "source": self.source,
            "every": self.every,
            "objects": [_describe(item) for item in self.objects],
        }


def _describe(item: Object) -> Dict[str, Any]:
    described = {
        "id": item.id,
        "kind": item.kind,
        "port": item.port,
        "info": item.info,
        "metrics": list(item.metrics),
    }
    return described if item.node is None else {**described, "node": item.node}


def layout_hash(blocks: Sequence[BlockLayout]) -> str:
    """16 hex digits that change when the position or the meaning of any value changes."""
    shape = [
        (
            block.source,
            block.every,
            [(item.node, item.id, item.metrics) for item in block.objects],
        )
        for block in blocks
    ]
    return hashlib.sha256(dump(shape)).hexdigest()[:16]


def hello(
    blocks: Sequence[BlockLayout], about: Dict[str, Any], kinds: Optional[Dict[str, str]] = None
) -> bytes:
    """The hello line, which gives the layout of the frames after it.

    `about` names the node, the probe and, when it is not plain, the encoding. `kinds` are the kinds
    of metrics that differ from the catalog's.
    """
    used = sorted({name for block in blocks for item in block.objects for name in item.metrics})
    message = {
        "wire": VERSION,
        "encoding": PLAIN,
        **about,
        "layout": layout_hash(blocks),
        "metrics": {
            name: {"unit": CATALOG[name].unit, "kind": (kinds or {}).get(name, CATALOG[name].kind)}
            for name in used
        },
        "blocks": [block.describe() for block in blocks],
    }
    return dump(["hello", message]) + b"\n"


def frame(seq: int, wall_ns: int, mono_ns: int, blocks: Sequence[Block]) -> bytes:
    """The line of one tick."""
    return dump(["frame", seq, wall_ns, mono_ns, blocks]) + b"\n"


def notice(
    event: str, source: str, text: str, object_id: str = "", metric: str = "", reason: str = ""
) -> bytes:
    """The line that reports a source, or one value of it, as `lost`, `recovered` or `absent`.

    An event of the kernel log is `logged`: of the device `object_id`, of the kind `metric`.
    `reason` is `absent`, `unsupported`, `denied`, `failed`, `late` or `saturated`; `text` is for
    people.
    """
    message = {
        "event": event,
        "source": source,
        "object": object_id,
        "metric": metric,
        "reason": reason,
        "text": text,
    }
    return dump(["notice", message]) + b"\n"


def answer(kind: str, message: Dict[str, Any]) -> bytes:
    """A line that answers a request of the console, a `burst` or a `trace`: see docs/wire.md."""
    return dump([kind, message]) + b"\n"


_ENCODE = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def dump(value: Any) -> bytes:
    """Compact JSON, without optional spaces."""
    return _ENCODE(value).encode()


Encoder = Callable[[int, int, int, Sequence[Block]], bytes]
"""seq, wall_ns, mono_ns and blocks of a frame -> its line."""


class FramePacker:
    """Writes the frames after one hello in the encoding `delta-deflate`.

    A frame is a third as large as a plain one while few counters change. A line is still JSON:
    `["packed", BASE64]`, whose bytes continue a raw deflate stream that began with the hello.
    Inflated, it is the frame as `[seq, wall_ns, mono_ns, [block, ...]]`, with the difference to the
    previous frame for every number but `seq`; a value that was absent before counts as 0.
    """

    def __init__(self) -> None:
        self._stream = zlib.compressobj(zlib.Z_BEST_SPEED, zlib.DEFLATED, -WINDOW_BITS)
        self._wall_ns = 0
        self._mono_ns = 0
        self._before: List[List[int]] = []

    def frame(self, seq: int, wall_ns: int, mono_ns: int, blocks: Sequence[Block]) -> bytes:
        """The line of one tick."""
        if not self._before:
            self._before = [[] for _ in blocks]
        deltas = [self._deltas(place, block) for place, block in enumerate(blocks)]
        text = dump([seq, wall_ns - self._wall_ns, mono_ns - self._mono_ns, deltas])
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
            self._before[place] = block  # type: ignore[call-overload]
        except TypeError:
            deltas = [None if new is None else new - old for new, old in zip(block, before)]
            self._before[place] = [new or 0 for new in block]
        return deltas


_ENCODINGS: Dict[str, Callable[[], Encoder]] = {
    "delta-deflate": lambda: FramePacker().frame,
    PLAIN: lambda: frame,
}


def choose_encoding(understood: Sequence[str]) -> str:
    """The first encoding of a console's list that this probe can write, else `plain`."""
    return next((name for name in understood if name in _ENCODINGS), PLAIN)


def make_encoder(encoding: str) -> Encoder:
    """A new encoder for the frames after one hello. Raises KeyError."""
    return _ENCODINGS[encoding]()
