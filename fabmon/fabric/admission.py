"""What a hello must be before the fabric is built from it.

Whatever is refused here costs the node that said it, and nobody else.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from fabmon.fabric.messages import Hello, ObjectInfo, WireError

_LONGEST_INTERVAL_S = 86_400.0
_MOST_EVERY = 86_400
_MOST_HOPS = 4096

_Count = Annotated[int, Meta(ge=0, le=2**53)]
_Speed = Annotated[float, Meta(ge=0, le=1e6)]
_Priorities = Annotated[list[Annotated[int, Meta(ge=0, le=63)]], Meta(max_length=64)]


class _Member(msgspec.Struct):
    dev: str | None = None


class _Facts(msgspec.Struct):
    """The keys of an object's `info` that something is worked out from; the rest is only shown."""

    netdev: str | None = None
    bond: str | None = None
    mac: str | None = None
    pci: str | None = None
    rdma: str | None = None
    dev: str | None = None
    node_role: str | None = None
    node_group: str | None = None
    members: Annotated[list[_Member], Meta(max_length=_MOST_HOPS)] | None = None
    destinations_count: _Count | None = None
    addresses: list[str] | None = None
    default_route: bool | None = None
    pfc: str | None = None
    pfc_priorities: _Priorities | None = None
    roce_ecn_np: _Priorities | None = None
    roce_ecn_rp: _Priorities | None = None
    pcie_speed_gtps: _Speed | None = None
    pcie_width: _Count | None = None
    pcie_max_speed_gtps: _Speed | None = None
    pcie_max_width: _Count | None = None


def admit(hello: Hello) -> None:
    """Raise WireError, with what is wrong and where, unless the hello can be used."""
    if not 0 < hello.interval_s <= _LONGEST_INTERVAL_S:
        raise WireError("hello: interval_s must be more than 0 and at most a day")
    for block in hello.blocks:
        if not 1 <= block.every <= _MOST_EVERY:
            raise WireError(f"hello: {block.source}: every must be 1 to {_MOST_EVERY} ticks")
        for item in block.objects:
            _admit_facts(block.source, item)


def _admit_facts(source: str, item: ObjectInfo) -> None:
    try:
        msgspec.convert(item.info, _Facts)
    except (msgspec.ValidationError, OverflowError) as error:
        raise WireError(f"hello: {source}: {item.id}: info: {error}") from None
