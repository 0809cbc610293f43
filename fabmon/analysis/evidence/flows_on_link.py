"""The flows on a link: from the hosts' queue pairs, or else NICs whose traffic correlates with it.

A host's own link carries its flows and no others. Which of a leaf's uplinks a flow takes is decided
by the switch's hash and not observable: every flow from below the leaf to elsewhere may be on any
of them. Where no queue pair is known, NICs that send more when the link carries more are inferred
to use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.flows.possible_ends import flows_between, possible_ends
from fabmon.fabric.flows.sampled import PortSamples
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.fabric.topology.leaves import Rows

_TICKS = 120
"""Ticks over which traffic is correlated."""

_MIN_TICKS = 20
"""Ticks with traffic below which a correlation means little."""

_COMMUNICATES = 0.3
"""Share of the usual traffic, 0 to 1, above which a tick counts: all NICs are idle between."""

_MIN_CORRELATION = 0.5
"""Pearson's r from which on a NIC's traffic correlates with a link's."""

_MAX_CORRELATED = 12
"""Correlated NICs that are returned, the best first."""

_STEADY = 1e-3
"""Curves that vary by less than this share of their mean correlate with nothing."""


@dataclass(frozen=True, slots=True)
class CorrelatedNic:
    """A NIC whose traffic correlates with a link's: `r` is Pearson's correlation, up to 1."""

    row: int
    r: float


@dataclass(frozen=True, slots=True)
class FlowsOnLink:
    """The flows that may be on a link in one direction.

    `flows` are places in the snapshot's flow table, those of the port that sends most first. They
    are on the link where it `is_exact`, else they may be; then those of ports whose traffic
    correlates with the link's are first. `unsure` counts flows of possible senders whose
    destination is not known. `sports` counts the distinct UDP source ports, 0 when they cannot be
    computed. Of the `senders`, the hosts that can send into the link, the `silent` do not report
    queue pairs. Where none does, `moving` are the NICs that correlate with the link over `ticks`
    ticks, by what they send or receive (`way`, `tx` or `rx`).
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
    def has_queue_pairs(self) -> bool:
        """Whether any host that can send into the link reports queue pairs."""
        return self.silent != self.senders


def flows_on_link(snapshot: Snapshot, rows: Sequence[int], way: str = "tx") -> FlowsOnLink | None:
    """The flows that may be on any of some links, in the direction that their ports send (`tx`) or
    receive (`rx`).

    None where the ports carry no traffic between nodes, or it is not known what is behind them.
    """
    connections = snapshot.connections
    ends = [found for row in rows if (found := possible_ends(connections, row, way))]
    if not ends:
        return None
    table, ports = connections.flows, snapshot.fabric.ports
    picked, unsure = flows_between(table, ends)
    can_send = np.flatnonzero(np.any([each.src for each in ends], axis=0)).tolist()
    senders = frozenset(ports[row].node for row in can_send)
    silent = senders - table.reporting
    is_exact = all(each.is_exact for each in ends)
    moving: tuple[CorrelatedNic, ...] = ()
    nics_way, ticks = "tx", 0
    if silent == senders and not is_exact:
        nics_way = "tx" if ends[0].leaves else "rx"
        near = np.flatnonzero(ends[0].src if ends[0].leaves else ends[0].dst)
        moving, ticks = correlated_nics(snapshot, rows[0], way, near, nics_way)
    picked = _by_rate(snapshot, picked)
    if not is_exact and len(picked):
        picked = _by_correlation(snapshot, rows[0], way, picked)
    sports = table.distinct_sports(picked)
    return FlowsOnLink(picked, is_exact, unsure, sports, senders, silent, moving, nics_way, ticks)


def sampled_on_link(snapshot: Snapshot, rows: Sequence[int], way: str) -> PortSamples | None:
    """What switches sampled on some links in one direction, the largest flows first.

    None where no switch at either end of the first link is an sFlow agent.
    """
    ports = snapshot.fabric.ports
    known = [row for row in rows if 0 <= row < len(ports) and ports[row].node]
    if not snapshot.sampled or not known:
        return None
    return snapshot.sampled.on_link(ports[known[0]], way)


def correlated_nics(
    snapshot: Snapshot, row: int, way: str, nics: Rows, nics_way: str
) -> tuple[tuple[CorrelatedNic, ...], int]:
    """The NICs whose traffic correlates with a port's while they communicate, the best first, and
    the number of ticks that were compared; none and 0 for too few ticks.
    """
    if not len(nics):
        return (), 0
    link = snapshot.window(f"{way}_bps", [row], _TICKS)[0]
    theirs = snapshot.window(f"{nics_way}_bps", nics.tolist(), _TICKS)
    together = np.nansum(theirs, axis=0)
    usual = float(np.percentile(together, 95))
    counts = np.isfinite(link) & (together > _COMMUNICATES * usual) & (usual > 0)
    ticks = int(counts.sum())
    if ticks < _MIN_TICKS:
        return (), 0
    r = correlations(link[counts], theirs[:, counts])
    best = np.argsort(-np.nan_to_num(r, nan=-2.0), kind="stable")[:_MAX_CORRELATED]
    found = [CorrelatedNic(int(nics[place]), round(float(r[place]), 2)) for place in best.tolist()]
    return tuple(each for each in found if each.r >= _MIN_CORRELATION), ticks


def correlations(curve: Floats, others: Floats) -> NDArray[np.float64]:
    """[n]: Pearson's r of a curve [ticks] with each of [n, ticks]; NaN where either is steady."""
    one = curve.astype(np.float64) - curve.mean(dtype=np.float64)
    many = np.nan_to_num(others).astype(np.float64)
    mean = many.mean(axis=1)
    many -= mean[:, None]
    lengths = np.sqrt((many * many).sum(axis=1))
    length = float(np.sqrt((one * one).sum()))
    least = _STEADY * np.sqrt(max(len(curve), 1))
    if length <= least * abs(float(curve.mean(dtype=np.float64))):
        return np.full(len(many), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        r: NDArray[np.float64] = (many @ one) / (lengths * length)
    r[lengths <= least * np.abs(mean)] = np.nan
    return r


def _by_correlation(snapshot: Snapshot, row: int, way: str, flows: Rows) -> Rows:
    """Flows, those of NICs that correlate best with a port first; else in their order."""
    src = snapshot.connections.flows.src[flows]
    r = np.full(len(snapshot.fabric.ports), -1.0)
    for each in correlated_nics(snapshot, row, way, np.unique(src), "tx")[0]:
        r[each.row] = each.r
    order: Rows = flows[np.argsort(-r[src], kind="stable")]
    return order


def _by_rate(snapshot: Snapshot, flows: Rows) -> Rows:
    """Flows, those of the NIC that sends most first."""
    table = snapshot.connections.flows
    src = table.src[flows]
    rate = np.nan_to_num(snapshot.column("tx_bps"), nan=-1.0)[src]
    order: Rows = flows[np.lexsort((table.lqpn[flows], src, -rate))]
    return order
