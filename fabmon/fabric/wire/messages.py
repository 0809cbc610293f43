"""What a node says, typed: the console's reading of the wire (docs/wire.md, collectors/wire.py).

Everything a node sends is data. Texts are stripped of control characters and bounded when they are
decoded, so that nothing after this module can paint an escape sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from collectors import wire

_MAX_TEXT = 400
_COUNTERS_END = 1 << 64

_Microseconds = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class WireError(Exception):
    """A line that does not follow the wire; the message says what was wrong with it."""


class ObjectInfo(msgspec.Struct, frozen=True):
    """One object of a block: a port, an ECMP group, a neighbour or the node itself.

    `node` names another node than the speaker when the object is about one.
    """

    id: str
    kind: str
    port: str | None
    info: dict[str, Any]
    metrics: tuple[str, ...]
    node: str | None = None


class BlockInfo(msgspec.Struct, frozen=True):
    """One source's part of every frame; `every` is the number of ticks between its reads."""

    source: str
    every: int
    objects: tuple[ObjectInfo, ...]

    def width(self) -> int:
        """Values in a block of this layout, its own clock included."""
        return 1 + sum(len(item.metrics) for item in self.objects)


class MetricInfo(msgspec.Struct, frozen=True):
    """Unit and kind of a metric as the node's own catalog has them."""

    unit: str
    kind: str


class Hello(msgspec.Struct, frozen=True):
    """What the frames of a node hold from here on."""

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

    def width(self) -> int:
        """Values in a frame of this layout, the blocks' clocks included."""
        return sum(block.width() for block in self.blocks)

    def objects(self) -> Iterator[tuple[int, int, ObjectInfo]]:
        """Every object: its block's number, the position of its first value in a frame, itself.

        A frame is its blocks one after the other, each with its clock first.
        """
        position = 0
        for number, block in enumerate(self.blocks):
            position += 1
            for item in block.objects:
                yield number, position, item
                position += len(item.metrics)

    def counts_like(self, other: Hello) -> bool:
        """Whether two hellos of a node differ in facts only, so that its counters go on.

        What lies where is compared itself: `layout` is only what the node says of it.
        """
        return (
            self.boot_id == other.boot_id
            and self.interval_s == other.interval_s
            and self.metrics == other.metrics
            and self._shape() == other._shape()
        )

    def _shape(self) -> list[tuple[str, int, list[tuple[str | None, str, tuple[str, ...]]]]]:
        """What lies where in a frame: every object that has values, by block."""
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
    blocks: list[list[int | None] | None]


class Packed(msgspec.Struct, array_like=True, tag="packed", gc=False):
    """One tick of a node whose hello names another encoding than plain; see unpacking.py."""

    data: bytes


class Notice(msgspec.Struct, frozen=True):
    """A source, or one value of it, was lost, came back, or is absent; `text` is for a person."""

    event: str
    source: str
    object: str = ""
    metric: str = ""
    reason: str = ""
    text: str = ""


class BurstPort(msgspec.Struct, frozen=True):
    """A port of a burst: who counts its bytes, and which two metrics each sample has of it."""

    port: str
    source: str
    metrics: tuple[str, ...]


class Burst(msgspec.Struct, frozen=True):
    """A part of a burst that the console asked for under this `id`.

    The first part has the `ports`, and in `missing` why others have none. A sample is the node's
    monotonic clock in ns, then tx and rx bytes of each port, null where it could not be read. The
    last part is `done`; `error` says what went wrong.
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
                    raise ValueError("a burst's sample with a number beyond 64 bits, or below 0")


class TracedPath(msgspec.Struct, frozen=True):
    """The way of one flow. `hops` are from TTL 1 on, each with its answers: who, and after how many
    microseconds; a hop without any did not answer.

    `end` is `reached` (the destination), `silent` (nobody answers any more), `refused` or `failed`
    (`text` says by whom and why), `far` (not in so many hops) or `late` (not in time).
    """

    sport: int
    end: str
    text: str = ""
    hops: tuple[tuple[tuple[str, _Microseconds], ...], ...] = ()


class Trace(msgspec.Struct, frozen=True):
    """A part of a trace that the console asked for under this `id`: a path, or a note for a person.

    The last part is `done`; `error` says what went wrong.
    """

    id: int
    path: TracedPath | None = None
    note: str = ""
    done: bool = False
    error: str = ""


Answer = Burst | Trace
"""What a node sends only because it was asked to."""


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
    """One line of the wire. Raises WireError for anything else, with what was expected."""
    try:
        message = _DECODER.decode(line)
        if isinstance(message, (Frame, Packed)):
            return message
        body = _cleaned(message.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"not a line of the wire: {error}") from None
    if isinstance(body, Hello) and body.wire != wire.VERSION:
        raise WireError(
            f"the node speaks wire {body.wire}, this console {wire.VERSION}: "
            "install the same fabmon on both"
        )
    return body


def fits(frame: Frame, hello: Hello) -> bool:
    """Whether a frame holds what the hello announced."""
    try:
        check(frame, hello)
    except WireError:
        return False
    return True


def check(frame: Frame, hello: Hello) -> None:
    """Raise WireError unless the frame fits the layout that its node announced."""
    if len(frame.blocks) != len(hello.blocks):
        raise WireError(f"a frame of {len(frame.blocks)} blocks, announced {len(hello.blocks)}")
    for block, info in zip(frame.blocks, hello.blocks, strict=True):
        if block is not None and len(block) != info.width():
            raise WireError(
                f"{info.source}: a block of {len(block)} values, announced {info.width()}"
            )


def clean(text: str) -> str:
    """A node's text as it may be shown: printable, one line, at most 400 characters."""
    return printable(text[:_MAX_TEXT])


def printable(text: str) -> str:
    """A text with `?` for all that a terminal may take for something else than a letter."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "?" for c in text)


def _cleaned(body: Hello | Notice | Answer) -> Hello | Notice | Answer:
    return msgspec.convert(_clean(msgspec.to_builtins(body)), type(body))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    return value
