"""The cables between neighbouring tiers, as tables: leaves by spines, spines by cores. Of a flat
fabric: groups by groups and the switches of each group, or the switches along each dimension."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fabmon.fabric.model import RAIL, SWITCH, UPLINK, Fabric, Port, Shape
from fabmon.fabric.names import natural
from fabmon.fabric.snapshot import Floats

UNKNOWN = ""
"""The upper switch of an uplink with an unknown far end."""

_TIERS = {1: "leaf", 2: "spine", 3: "core"}
_FLAT, _GROUPS = 0, ""
"""Place of the cables between switches of one tier, and of those between groups of them."""


class TierLink(NamedTuple):
    """One cable: the rows of its ends at the lower and at the upper switch, None if not watched."""

    low: int | None
    high: int | None


class TierMatrix(NamedTuple):
    """The switches of a tier (`lows`) and those above (`highs`, the last may be UNKNOWN).

    `cells` has the cables of every connected pair.
    """

    title: str
    lows: tuple[str, ...]
    highs: tuple[str, ...]
    cells: dict[tuple[str, str], tuple[TierLink, ...]]


def tables(fabric: Fabric) -> tuple[TierMatrix, ...]:
    """One table for each tier and part of the fabric, from the leaves up."""
    found: dict[tuple[int, str], dict[tuple[str, str], list[TierLink]]] = {}
    shape = fabric.shape
    for low, high, crossing in _crossings(fabric):
        where = shape.flat_links.get((low, high))
        if where is None:
            place = (shape.tiers.get(low, 1), _part(shape, low, high))
        elif where == shape.pods.get(high):
            place = (_FLAT, _GROUPS)
            low, high = sorted((shape.pods[low], where), key=natural)
        else:
            place = (_FLAT, shape.pods[low] if where == "local" else where)
        found.setdefault(place, {}).setdefault((low, high), []).append(crossing)
    return tuple(
        _table(tier, part, found[tier, part])
        for tier, part in sorted(found, key=lambda place: (place[0], natural(place[1])))
    )


def _crossings(fabric: Fabric) -> Iterator[tuple[str, str, TierLink]]:
    """(lower switch, upper switch, cable), each cable once."""
    for node in fabric.nodes:
        if node.role != SWITCH:
            continue
        for port in node.ports:
            direction = _direction(port, fabric.shape)
            if direction is None:
                continue
            low, high = direction
            if low == port.node:
                yield low, high, TierLink(port.row, port.peer)
            elif port.peer is None:
                # The lower switch is not watched; this end has the cable.
                yield low, high, TierLink(None, port.row)


def _direction(port: Port, shape: Shape) -> tuple[str, str] | None:
    """(lower, upper) switch of a port's cable; None if it does not connect two tiers."""
    if port.cable is None:
        return (port.node, UNKNOWN) if port.role == UPLINK else None
    here, there = shape.tiers.get(port.node), shape.tiers.get(port.cable.node)
    far = port.cable.node
    if (port.node, far) in shape.flat_links:
        return (port.node, far) if natural(port.node) < natural(far) else (far, port.node)
    if port.role == UPLINK:
        return port.node, far
    if here and there and there < here:
        return port.cable.node, port.node
    return None


def _part(shape: Shape, low: str, high: str) -> str:
    """The plane and pod of a cable; empty if it has none."""
    plane = shape.planes.get(high) or shape.planes.get(low) or ""
    pod = shape.pods.get(low, "")
    return " ".join(part for part in (plane, pod) if part)


def _table(tier: int, part: str, cells: dict[tuple[str, str], list[TierLink]]) -> TierMatrix:
    lows = sorted({low for low, _ in cells}, key=natural)
    highs = sorted({high for _, high in cells if high != UNKNOWN}, key=natural)
    if any(high == UNKNOWN for _, high in cells):
        highs.append(UNKNOWN)
    title = f"{_tier(tier)} by {_tier(tier + 1)}"
    if tier == _FLAT:
        title, part = ("groups by groups", "") if part == _GROUPS else ("switches", part)
    return TierMatrix(
        f"{title}, {part}" if part else title,
        tuple(lows),
        tuple(highs),
        {pair: tuple(crossings) for pair, crossings in cells.items()},
    )


def down_up(fabric: Fabric, line_rate_bps: Floats, up: Floats) -> dict[str, tuple[float, float]]:
    """The capacity of each leaf to its hosts and of its uplinks, bits/s, of links that are not
    down.

    `line_rate_bps` and `up` are [ports]. A leaf is a switch with uplinks and NICs below it; where a
    line rate is unknown it is left out.
    """
    found = {}
    for node in fabric.nodes:
        if node.role != SWITCH:
            continue
        live = [port for port in node.ports if up[port.row] != 0]
        above = [port.row for port in live if port.role == UPLINK]
        below = [
            port.row
            for port in live
            if port.peer is not None and fabric.ports[port.peer].role == RAIL
        ]
        rates = [float(line_rate_bps[row]) for row in (*below, *above)]
        if above and below and all(rate > 0 for rate in rates):
            found[node.name] = (sum(rates[: len(below)]), sum(rates[len(below) :]))
    return found


def ratio_text(down_bps: float, up_bps: float) -> str:
    """`1:1`, `2.33:1`: capacity to hosts over that of the uplinks."""
    return f"{round(down_bps / up_bps, 2):g}:1"


def _tier(tier: int) -> str:
    return _TIERS.get(tier, f"tier {tier}")
