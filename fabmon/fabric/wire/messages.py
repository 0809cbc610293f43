"""Messages of the wire, typed and checked (docs/wire.md, collectors/wire.py).

Texts are stripped of control characters and truncated when they are decoded, so that no later
module can print an escape sequence.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from sys import intern
from typing import Annotated, Any, TypeVar

import msgspec

from collectors import wire
from fabmon.fabric.time_wording import TimeNs
from fabmon.malformed_json import MALFORMED

_MAX_TEXT = 400
_COUNTERS_END = 1 << 64

WORD = "L" if array("L").itemsize == 8 else "Q"
"""The type of an array of 64-bit values. CPython converts an int to an unsigned long twice as fast
as to an unsigned long long."""

Values = Sequence[int | None]
"""A block of a frame: a list, or an array of type WORD, which cannot have gaps."""

_HARMLESS = bytes(range(32, 127)).replace(b"\\", b"") + b"\r\n\t"
_LONG_TEXT = re.compile(rb'"[^"]{%d}' % (_MAX_TEXT + 1))

_MOST_SHARED = 512
"""Names of metrics of an object, of a catalog or of a driver's other counters (a probe names 500)
that nodes share. What a node can make the console keep of them is at most 80 MB."""

_MOST_KINDS, _MOST_CATALOGS = 256, 32
"""How many such lists, and catalogs, are shared."""

_Item = TypeVar("_Item", tuple[str, ...], "Coverage")

_Microseconds = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Hop = Annotated[tuple[tuple[str, _Microseconds], ...], msgspec.Meta(max_length=3)]
"""The answers of a hop; as many as `fabmon trace` can ask for, as are the hops of a path."""


class WireError(Exception):
    """A line that violates the wire format; the message says how."""


class ObjectInfo(msgspec.Struct, frozen=True, gc=False):
    """One object of a block: a port, an ECMP group, a neighbour or the node itself.

    `node` is the node that the object belongs to, if it is not the sender.
    """

    id: str
    kind: str
    port: str | None
    info: dict[str, Any]
    metrics: tuple[str, ...]
    node: str | None = None


class BlockInfo(msgspec.Struct, frozen=True, gc=False):
    """The part of every frame that one source fills; `every` is the number of ticks between its
    reads."""

    source: str
    every: int
    objects: tuple[ObjectInfo, ...]

    def width(self) -> int:
        """Values in a block of this layout, its own clock included."""
        return 1 + sum(len(item.metrics) for item in self.objects)


class MetricInfo(msgspec.Struct, frozen=True, gc=False):
    """Unit and kind of a metric in the node's catalog."""

    unit: str
    kind: str


class Coverage(msgspec.Struct, frozen=True, gc=False):
    """How many counters of one driver a source saw and read; `unmapped` names the others.

    Names that differ in numbers only are one, as `rx[0-63]_bytes`. `guessed` is set where the
    driver has no table of its own and the usual names are read by pattern.
    """

    source: str
    driver: str
    ports: int = 0
    seen: int = 0
    read: int = 0
    guessed: bool = False
    unmapped: tuple[str, ...] = ()


class Limit(msgspec.Struct, frozen=True, gc=False):
    """What a source cannot see of its node although nothing failed: a sentence."""

    source: str
    text: str


class Hello(msgspec.Struct, frozen=True, gc=False):
    """The layout of the following frames of a node."""

    wire: int
    layout: str
    blocks: tuple[BlockInfo, ...]
    metrics: dict[str, MetricInfo]
    interval_s: float
    probe: str = ""
    hostname: str = ""
    boot_id: str = ""
    python: str = ""
    kernel: str = ""
    reached_at: str = ""
    encoding: str = "plain"
    # Left out where there is none, as in the hellos of older probes and recordings.
    coverage: tuple[Coverage, ...] | msgspec.UnsetType = msgspec.UNSET
    limits: tuple[Limit, ...] | msgspec.UnsetType = msgspec.UNSET

    def width(self) -> int:
        """Values in a frame of this layout, the blocks' clocks included."""
        return sum(self.widths())

    def widths(self) -> list[int]:
        """Values in each block of a frame of this layout, its clock included."""
        return [block.width() for block in self.blocks]

    def objects(self) -> Iterator[tuple[int, int, ObjectInfo]]:
        """Every object with the number of its block and the position of its first value in a frame.

        A frame is its blocks one after the other, each beginning with its clock.
        """
        position = 0
        for number, block in enumerate(self.blocks):
            position += 1
            for item in block.objects:
                yield number, position, item
                position += len(item.metrics)

    def has_same_layout(self, other: Hello) -> bool:
        """Whether two hellos of a node differ only in facts, so that its counters continue.

        The layout itself is compared: `layout` is a hash that the node computes.
        """
        return (
            self.boot_id == other.boot_id
            and self.interval_s == other.interval_s
            and self.metrics == other.metrics
            and self._shape() == other._shape()
        )

    def _shape(self) -> list[tuple[str, int, list[tuple[str | None, str, tuple[str, ...]]]]]:
        """The layout of a frame: every object that has values, by block."""
        return [
            (
                block.source,
                block.every,
                [(o.node, o.id, o.metrics) for o in block.objects if o.metrics],
            )
            for block in self.blocks
        ]


class Frame(msgspec.Struct, array_like=True, tag="frame", gc=False):
    """One tick of one node. A block is its monotonic clock in ns, then its values; see Hello."""

    seq: int
    wall_ns: int
    mono_ns: int
    blocks: Sequence[Values | None]


class Packed(msgspec.Struct, array_like=True, tag="packed", gc=False):
    """One tick of a node whose hello names another encoding than plain; see unpacking.py."""

    data: bytes


class Notice(msgspec.Struct, frozen=True):
    """A source, or one value of it, failed, recovered or is absent; `text` explains it.

    With the event `logged` it is a message of the kernel log: about the device `object`, of the
    kind `metric`. `logged_ns` is then the console's wall clock, in the state of a recording; a node
    does not send it.
    """

    event: str
    source: str
    object: str = ""
    metric: str = ""
    reason: str = ""
    text: str = ""
    # Left out where there is none, as in the notices of probes and of older recordings.
    logged_ns: TimeNs | msgspec.UnsetType = msgspec.UNSET


class BurstPort(msgspec.Struct, frozen=True):
    """A port of a burst: the source that counts its bytes, and the two metrics of each sample."""

    port: str
    source: str
    metrics: tuple[str, ...]


class Burst(msgspec.Struct, frozen=True):
    """A part of a burst that the console requested with this `id`.

    The first part has the `ports`, and in `missing` the reason for each port without samples. A
    sample is the node's monotonic clock in ns, then tx and rx bytes of each port, null where it
    could not be read. The last part is `done`; `error` says what went wrong.
    """

    id: int
    hz: float = 0.0
    seconds: float = 0.0
    ports: tuple[BurstPort, ...] = ()
    missing: dict[str, str] = {}
    samples: tuple[tuple[int | None, ...], ...] = ()
    done: bool = False
    error: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for what no counter can hold."""
        for sample in self.samples:
            for value in sample:
                if value is not None and not 0 <= value < _COUNTERS_END:
                    raise ValueError("a burst sample is not an unsigned 64-bit number")


class TracedPath(msgspec.Struct, frozen=True):
    """The path of one flow. `hops` are from TTL 1 on, each with its answers: address and round-trip
    time in microseconds; a hop without answers is silent.

    `end` is `reached` (the destination), `silent` (no more answers), `refused` or `failed` (`text`
    has the address and the reason), `far` (more hops than the limit) or `late` (out of time).
    """

    sport: int
    end: str
    text: str = ""
    hops: Annotated[tuple[_Hop, ...], msgspec.Meta(max_length=64)] = ()


class Trace(msgspec.Struct, frozen=True):
    """A part of a trace that the console requested with this `id`: a path, or a note.

    The last part is `done`; `error` says what went wrong.
    """

    id: int
    path: TracedPath | None = None
    note: str = ""
    done: bool = False
    error: str = ""


Answer = Burst | Trace
"""Messages that a node sends on request only."""


class _HelloLine(msgspec.Struct, array_like=True, tag="hello"):
    body: Hello


class _NoticeLine(msgspec.Struct, array_like=True, tag="notice"):
    body: Notice


class _BurstLine(msgspec.Struct, array_like=True, tag="burst"):
    body: Burst


class _TraceLine(msgspec.Struct, array_like=True, tag="trace"):
    body: Trace


_DECODER = msgspec.json.Decoder(_HelloLine | Frame | Packed | _NoticeLine | _BurstLine | _TraceLine)

Message = Hello | Frame | Packed | Notice | Answer


def decode(line: bytes | bytearray) -> Message:
    """The message of a line. Raises WireError for anything else."""
    try:
        message = _DECODER.decode(line)
        if isinstance(message, (Frame, Packed)):
            return message
        body = message.body if _is_clean(line) else _cleaned(message.body)
        if isinstance(body, Hello):
            body = _with_shared_texts(body)
    except MALFORMED as error:
        raise WireError(f"not a wire message: {error}") from None
    if isinstance(body, Hello) and body.wire != wire.VERSION:
        raise WireError(
            f"the node uses wire version {body.wire}, this console {wire.VERSION}: "
            "install the same fabmon on both"
        )
    return body


def fits(frame: Frame, hello: Hello) -> bool:
    """Whether a frame has the layout of a hello."""
    try:
        check(frame, hello)
    except WireError:
        return False
    return True


def check(frame: Frame, hello: Hello) -> None:
    """Raise WireError if the frame does not have the layout of the hello."""
    if len(frame.blocks) != len(hello.blocks):
        raise WireError(f"a frame of {len(frame.blocks)} blocks, announced {len(hello.blocks)}")
    for block, info in zip(frame.blocks, hello.blocks, strict=True):
        if block is not None and len(block) != info.width():
            raise WireError(
                f"{info.source}: a block of {len(block)} values, announced {info.width()}"
            )


def clean(text: str) -> str:
    """A node's text made safe to print: printable, one line, at most 400 characters."""
    return printable(text[:_MAX_TEXT])


def printable(text: str) -> str:
    """A text with `?` in place of every character that is not printable."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text)


def _is_clean(line: bytes | bytearray) -> bool:
    """Whether all texts of a line are surely clean: to look is ten times faster than to clean.

    Printable ASCII without a backslash has no other characters when it is decoded. Outside texts
    JSON has line ends and tabs too, inside it refuses them.
    """
    return not line.translate(None, _HARMLESS) and _LONG_TEXT.search(line) is None


def _with_shared_texts(hello: Hello) -> Hello:
    """The same hello; texts and names of metrics that others have too are theirs.

    Of a thousand nodes of a few kinds the names would take 50 MB, the other texts 10 MB.
    """
    for block in hello.blocks:
        for item in block.objects:
            put = partial(msgspec.structs.force_setattr, item)
            put("metrics", _shared(item.metrics, len(item.metrics)))
            put("id", intern(item.id))
            put("kind", intern(item.kind))
            if item.port is not None:
                put("port", intern(item.port))
            for key, value in item.info.items():
                if type(value) is str:
                    item.info[key] = intern(value)
    metrics = hello.metrics
    if len(metrics) <= _MOST_SHARED:
        metrics = _shared_table(tuple(metrics.items()))
    coverage = tuple(_shared(each, len(each.unmapped)) for each in hello.coverage or ())
    return msgspec.structs.replace(hello, metrics=metrics, coverage=coverage or msgspec.UNSET)


def _shared(item: _Item, size: int) -> _Item:
    """The first item that was equal; what is larger than any probe sends is not kept for others."""
    return _first_equal(item) if size <= _MOST_SHARED else item


@lru_cache(_MOST_KINDS)
def _first_equal(item: Any) -> Any:
    return item


@lru_cache(_MOST_CATALOGS)
def _shared_table(metrics: tuple[tuple[str, MetricInfo], ...]) -> dict[str, MetricInfo]:
    return dict(metrics)


def _cleaned(body: Hello | Notice | Answer) -> Hello | Notice | Answer:
    return msgspec.convert(with_texts(msgspec.to_builtins(body), clean), type(body))


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A value as in JSON, with all its texts changed, those of keys too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {with_texts(key, change): with_texts(each, change) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [with_texts(each, change) for each in value]
    return value
