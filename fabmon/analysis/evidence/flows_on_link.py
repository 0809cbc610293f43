"""Who is on a link: flows by the hosts' queue pairs, or else hosts whose traffic moves with it.

A host's own link carries its flows and no others. Which of a leaf's uplinks a flow takes is a
secret of the switch's hash: all flows from below the leaf to elsewhere may be on any of them. Where
no queue pair is known, hosts that send more when the link carries more are inferred to be on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.finding import Evidence
from fabmon.fabric.flows.flow_table import FlowTable
from fabmon.fabric.model import DOWNLINK, RAIL, UPLINK
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.fabric.topology.leaves import NONE, Mask, Rows, far_node, is_uplink_to

_TICKS = 120
_LEAST_TICKS = 20
_COMMUNICATES = 0.3
"""Share of the usual traffic above which a tick counts: between them, all are alike idle."""
_MOVES = 0.5
_MOST_MOVING = 12
_STEADY = 1e-3
"""Curves that vary less than this share of their mean move with nothing."""


@dataclass(frozen=True, slots=True)
class CorrelatedNic:
    """A NIC whose traffic moves with a link's: `r` is Pearson's correlation, to 1."""

    row: int
    r: float


@dataclass(frozen=True, slots=True)
class FlowsOnLink:
    """What may be on a link in one direction.

    `flows` are places in the moment's flow table, those of the port that sends most first. They are
    on the link where it `is_exact`, else they may be: then first those of ports whose traffic moves
    with the link's. `unsure` are flows of those who can send into
    it whose other end is not known. `sports` are their distinct UDP source ports, 0 when they
    cannot be worked out. Of the `senders`, the hosts that can send into it, the `silent` do not
    tell their queue pairs. Where none does, `moving` are NICs that were seen to move with the link
    over `ticks` ticks; they do so in `way`.
    """

    flows: Rows
    is_exact: bool
    unsure: int
    sports: int
    senders: frozenset[str]
    silent: frozenset[str]
    moving: tuple[CorrelatedNic, ...] = ()
    way: str = "tx"
    ticks: int = 0

    @property
    def is_told(self) -> bool:
        """Whether anybody who can send into it tells queue pairs."""
        return self.silent != self.senders


@dataclass(frozen=True, slots=True)
class _Ends:
    """[ports]: NICs that can send into a link, and those they can send to over it.

    `leaves` says that the senders are those behind the link: whatever they send elsewhere takes it
    or one beside it.
    """

    src: Mask
    dst: Mask
    is_exact: bool
    leaves: bool


def flows_on_link(snapshot: Snapshot, rows: Sequence[int], way: str = "tx") -> FlowsOnLink | None:
    """What may be on any of the links, in the direction that their ports send (`tx`) or receive.

    None where the ports carry nothing between nodes, or nobody knows what is behind them.
    """
    ends = [found for row in rows if (found := _ends(snapshot, row, way)) is not None]
    if not ends:
        return None
    table = snapshot.connections.flows
    picked, unsure = _picked(table, ends)
    names = snapshot.fabric.ports
    can_send = np.flatnonzero(np.any([each.src for each in ends], axis=0)).tolist()
    senders = frozenset(names[row].node for row in can_send)
    silent = senders - table.reporting
    is_exact = all(each.is_exact for each in ends)
    moving: tuple[CorrelatedNic, ...] = ()
    seen_way, ticks = "tx", 0
    if silent == senders and not is_exact:
        seen_way = "tx" if ends[0].leaves else "rx"
        near = np.flatnonzero(ends[0].src if ends[0].leaves else ends[0].dst)
        moving, ticks = correlated_nics(snapshot, rows[0], way, near, seen_way)
    picked = _by_rate(snapshot, picked)
    if not is_exact and len(picked):
        picked = _likeliest_first(snapshot, rows[0], way, picked)
    return FlowsOnLink(
        picked,
        is_exact,
        unsure,
        table.distinct_sports(picked),
        senders,
        silent,
        moving,
        seen_way,
        ticks,
    )


def effective_flows(snapshot: Snapshot, row: int, flows: float) -> tuple[Evidence, ...]:
    """The effective flows of a group that a port is of, and of how many queue pairs on it at most,
    where those are few enough to be joined within a tick.
    """
    table = snapshot.connections.flows_if_quick
    ends = _ends(snapshot, row, "tx") if table else None
    picked = _picked(table, [ends])[0] if table and ends else np.empty(0, np.intp)
    if not table or not len(picked):
        return (Evidence("effective flows", flows, "flows"),)
    of = f"of {len(picked)} QPs"
    sports = table.distinct_sports(picked)
    told = Evidence("distinct UDP source ports", sports, of)
    return (Evidence("effective flows", flows, of), *((told,) if sports else ()))


def correlated_nics(
    snapshot: Snapshot, row: int, way: str, nics: Rows, nics_way: str
) -> tuple[tuple[CorrelatedNic, ...], int]:
    """NICs whose traffic moves with a port's while they communicate, the likest first, and over how
    many ticks that was looked at; too few ticks are told as 0.
    """
    if not len(nics):
        return (), 0
    link = snapshot.window(f"{way}_bps", [row], _TICKS)[0]
    theirs = snapshot.window(f"{nics_way}_bps", nics.tolist(), _TICKS)
    together = np.nansum(theirs, axis=0)
    usual = float(np.percentile(together, 95))
    counts = np.isfinite(link) & (together > _COMMUNICATES * usual) & (usual > 0)
    ticks = int(counts.sum())
    if ticks < _LEAST_TICKS:
        return (), 0
    r = correlations(link[counts], theirs[:, counts])
    best = np.argsort(-np.nan_to_num(r, nan=-2.0), kind="stable")[:_MOST_MOVING]
    alike = [CorrelatedNic(int(nics[place]), round(float(r[place]), 2)) for place in best.tolist()]
    return tuple(each for each in alike if each.r >= _MOVES), ticks


def correlations(curve: Floats, others: Floats) -> NDArray[np.float64]:
    """[n]: Pearson's r of a curve [ticks] with each of [n, ticks]; NaN where either is steady."""
    one = curve.astype(np.float64) - curve.mean(dtype=np.float64)
    many = np.nan_to_num(others).astype(np.float64)
    mean = many.mean(axis=1)
    many -= mean[:, None]
    lengths = np.sqrt((many * many).sum(axis=1))
    length = float(np.sqrt((one * one).sum()))
    ticks = max(len(curve), 1)
    steady = lengths <= _STEADY * np.sqrt(ticks) * np.abs(mean)
    if length <= _STEADY * np.sqrt(ticks) * abs(float(curve.mean(dtype=np.float64))):
        return np.full(len(many), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        r: NDArray[np.float64] = (many @ one) / (lengths * length)
    r[steady] = np.nan
    return r


def _ends(snapshot: Snapshot, row: int, way: str) -> _Ends | None:
    fabric, found = snapshot.fabric, snapshot.connections.leaves
    if not 0 <= row < len(fabric.ports) or not fabric.ports[row].node:
        return None
    port = fabric.ports[row]
    sends = way == "tx"
    nic = row if port.role == RAIL else port.peer
    if nic is not None and found.is_rail[nic]:
        one = np.zeros(len(fabric.ports), np.bool_)
        one[nic] = True
        from_it = sends == (nic == row)
        src, dst = (one, found.is_rail) if from_it else (found.is_rail, one)
        return _Ends(src, dst, True, from_it)
    if port.role not in (UPLINK, DOWNLINK):
        return None
    far = far_node(port, fabric)
    here = found.under(port.node)
    goes_up = is_uplink_to(port, far, fabric)
    below = here if goes_up else found.under(far)
    elsewhere = (found.is_rail if goes_up else here) & ~below
    if not below.any():
        return None
    upwards = goes_up == sends
    src, dst = (below, elsewhere) if upwards else (elsewhere, below)
    return _Ends(src, dst, False, upwards)


def _picked(table: FlowTable, ends: Sequence[_Ends]) -> tuple[Rows, int]:
    """The flows that may be on one of the links, and how many more have an unknown other end."""
    on_any = np.zeros(len(table), np.bool_)
    unsure = np.zeros(len(table), np.bool_)
    is_known = table.dst != NONE
    for each in ends:
        sent = each.src[table.src]
        reached = np.append(each.dst, False)[table.dst] & is_known
        on_any |= sent & (reached | (~is_known & each.leaves))
        unsure |= sent & ~is_known
    return np.flatnonzero(on_any), int(unsure.sum())


def _likeliest_first(snapshot: Snapshot, row: int, way: str, flows: Rows) -> Rows:
    src = snapshot.connections.flows.src[flows]
    moving, _ = correlated_nics(snapshot, row, way, np.unique(src), "tx")
    r = np.full(len(snapshot.fabric.ports), -1.0)
    for each in moving:
        r[each.row] = each.r
    order: Rows = flows[np.argsort(-r[src], kind="stable")]
    return order


def _by_rate(snapshot: Snapshot, flows: Rows) -> Rows:
    table = snapshot.connections.flows
    src = table.src[flows]
    rate = np.nan_to_num(snapshot.column("tx_bps"), nan=-1.0)[src]
    order: Rows = flows[np.lexsort((table.lqpn[flows], src, -rate))]
    return order
