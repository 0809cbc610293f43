"""The forwarding tables of InfiniBand switches, as a node reports them (docs/wire.md)."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

KIND = "forwarding_tables"

NO_PORT = 255
"""Out port of a LID that a switch does not forward."""

_MAX_LID = 0xBFFF
_MOST_SWITCHES = 8192
_MOST_BYTES = 32 * 1024 * 1024
"""Of all tables of one report, inflated: 700 switches with every LID."""


class _Info(msgspec.Struct, frozen=True):
    """The `info` of the object; the lists are parallel."""

    switches: Annotated[list[str], Meta(max_length=_MOST_SWITCHES)] = []
    tables: Annotated[list[list[str]], Meta(max_length=_MOST_SWITCHES)] = []
    left_out: Annotated[int, Meta(ge=0, le=2**31)] = 0
    error: str = ""
    engine: str = ""

    def __post_init__(self) -> None:
        if len(self.switches) != len(self.tables):
            raise ValueError("lists of different lengths")


class ForwardingTables(msgspec.Struct, frozen=True):
    """By name of the switch the number of the out port by LID, a byte each; 255 is none, 0 the
    switch itself.

    `left_out` is the number of switches without a table here, `error` says why there is none.
    `engine` is the subnet manager's routing engine; empty where it is not known.
    """

    tables: dict[str, bytes] = {}
    left_out: int = 0
    error: str = ""
    engine: str = ""

    @property
    def is_adaptive(self) -> bool:
        """Whether the routing engine is one of NVIDIA's that set up adaptive routing."""
        return self.engine.partition(",")[0].startswith("ar_")


def forwarding_tables(info: Mapping[str, Any]) -> ForwardingTables:
    """The tables of a report. Raises ValueError for what is not one (msgspec.ValidationError)."""
    given = msgspec.convert(info, _Info)
    left = _MOST_BYTES
    tables = {}
    for switch, pieces in zip(given.switches, given.tables, strict=True):
        tables[switch] = _unpacked(pieces)
        left -= len(tables[switch])
        if left < 0:
            raise ValueError(f"forwarding tables of more than {_MOST_BYTES} bytes")
    return ForwardingTables(tables, given.left_out, given.error, given.engine)


def joined(reports: Iterable[ForwardingTables]) -> ForwardingTables | None:
    """The tables of several subnets; None without any.

    Subnets number their LIDs independently: those of each further one are after those of the
    others. Of two reports of one subnet, which have switches in common, the first is used.
    """
    found: ForwardingTables | None = None
    for each in reports:
        if found is None:
            found = each
        elif found.tables.keys().isdisjoint(each.tables):
            before = bytes([NO_PORT]) * max(map(len, found.tables.values()), default=0)
            found = ForwardingTables(
                {**found.tables, **{name: before + own for name, own in each.tables.items()}},
                found.left_out + each.left_out,
                found.error or each.error,
                found.engine or each.engine,
            )
    return found


def _unpacked(pieces: list[str]) -> bytes:
    try:
        inflate = zlib.decompressobj()
        table = inflate.decompress(base64.b64decode("".join(pieces), validate=True), _MAX_LID + 1)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"not a forwarding table: {error}") from None
    if inflate.unconsumed_tail:
        raise ValueError(f"a forwarding table of more than {_MAX_LID + 1} LIDs")
    return table
