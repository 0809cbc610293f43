"""What the console asks a probe for beside the frames: to look faster, to follow flows."""

from __future__ import annotations

import json
from typing import Protocol

import msgspec

from fabmon.fabric.messages import Answer, Burst, Trace

PROBED = ("ssh", "exec", "local")
"""`via` of the nodes whose probe belongs to this console and listens to it."""


class Ask(Protocol):
    """A request to one node; `id` comes back with the answer, within `seconds` or a little more."""

    @property
    def id(self) -> int:
        """Greater than that of any request before."""

    @property
    def seconds(self) -> float:
        """How long it takes at most."""

    @property
    def answer(self) -> type[Answer]:
        """What its answers are. One request of a kind runs at a time on a node."""

    @property
    def cannot(self) -> str:
        """What a node without a probe of ours cannot do, after its name and `which`."""

    def line(self) -> bytes:
        """The request as the probe reads it."""


class BurstAsk(msgspec.Struct, frozen=True):
    """`ports` of one node, `hz` samples a second, for `seconds`.

    The probe takes at most 16 ports, 100 Hz and 60 s.
    """

    id: int
    ports: tuple[str, ...]
    seconds: float
    hz: float

    @property
    def answer(self) -> type[Answer]:
        """Samples."""
        return Burst

    @property
    def cannot(self) -> str:
        """Without a probe."""
        return "cannot sample faster"

    def line(self) -> bytes:
        """The request as the probe reads it."""
        return _line("burst", self)


class TraceAsk(msgspec.Struct, frozen=True, kw_only=True):
    """The way of UDP from `src`, an address of the node, to `dst`:4791, for each of `sports`.

    `dev` is the interface to leave by, None for the route's; `tos` is the whole byte; `probes` are
    the answers wanted of each hop. The probe takes at most 32 source ports, 64 hops, 3 answers and
    120 s.
    """

    id: int
    src: str
    dst: str
    sports: tuple[int, ...]
    dev: str | None = None
    tos: int = 0
    max_hops: int = 16
    probes: int = 1
    seconds: float = 60.0

    @property
    def answer(self) -> type[Answer]:
        """Paths."""
        return Trace

    @property
    def cannot(self) -> str:
        """Without a probe."""
        return "has no probe of this console that could trace"

    def line(self) -> bytes:
        """The request as the probe reads it."""
        return _line("trace", self)


def _line(key: str, ask: msgspec.Struct) -> bytes:
    return json.dumps({key: msgspec.to_builtins(ask)}).encode() + b"\n"
