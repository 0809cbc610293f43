"""The traffic of the whole fabric, for the header."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.measures import known_sum
from fabmon.fabric.model import RAIL, STORAGE, SWITCH, UPLINK, Fabric
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.fabric.time_window import Span

CURVE_COLUMNS = 8
_COLUMN_S = 5


@dataclass(frozen=True, slots=True)
class FabricTotal:
    """What all hosts send into the fabric: `bps`, of `line_rate_bps`. `curve` [CURVE_COLUMNS] is
    its highest value in each part of the last seconds, oldest first; NaN where nothing is known.
    """

    bps: float
    line_rate_bps: float
    curve: Floats


def fabric_total(snapshot: Snapshot, rows: NDArray[np.intp], over: Span) -> FabricTotal | None:
    """The sum of what the ports `rows` send, over a window; None without any, or where nothing is
    known."""
    if not len(rows):
        return None
    each = max(1, round(_COLUMN_S / max(snapshot.interval_s, 1e-3)))
    # Columns begin at fixed ticks, so that the curve moves only when one is complete.
    begun = snapshot.seq % each + 1
    ticks = (CURVE_COLUMNS - 1) * each + begun
    window = snapshot.window("tx_bps", rows, max(ticks, over.ticks))
    sums = known_sum(window, axis=0)
    starts = np.arange(CURVE_COLUMNS) * each
    curve = np.fmax.reduceat(sums[-ticks:], starts).astype(np.float32)
    if not np.isfinite(snapshot.column("tx_bps")[rows]).any():
        return None
    bps = float(over.reduce(sums[None, -over.ticks :])[0])
    rates = snapshot.line_rate_bps[rows]
    return FabricTotal(bps, float(np.nansum(rates)), curve)


def sending_rows(fabric: Fabric) -> NDArray[np.intp]:
    """The rows of hosts' rails and storage NICs; without any, of uplinks."""
    hosts = {node.name for node in fabric.nodes if node.role != SWITCH}
    ports = fabric.ports
    nics = [p.row for p in ports if p.role in (RAIL, STORAGE) and p.node in hosts]
    return np.array(nics or [port.row for port in ports if port.role == UPLINK], np.intp)
