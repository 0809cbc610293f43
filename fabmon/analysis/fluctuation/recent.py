"""The last minutes as the screen keeps them, studied as a recording is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec
import numpy as np

from fabmon.analysis.fluctuation.records import ALL, JOB, PAIR, RAIL, Fluctuation
from fabmon.analysis.fluctuation.study import Study
from fabmon.fabric.model import FABRIC
from fabmon.fabric.moment import Floats, Moment
from fabmon.history.history import RING_TICKS
from fabmon.history.passage import PASSAGE_S, Passage

MOST_PORTS = 2048
"""Ports that are looked at; with more, the copy would be felt."""


@dataclass(frozen=True, slots=True)
class Recent:
    """A copy of what is kept: traffic [rows, ticks] of some ports up to a moment."""

    moment: Moment
    rows: tuple[int, ...]
    left_out: int
    tx_bps: Floats
    rx_bps: Floats

    def studied(self) -> Fluctuation:
        """What it tells. It takes a second for a large fabric: not for an event loop."""
        moment, study = self.moment, Study()
        ticks = self.tx_bps.shape[1]
        each = max(1, round(PASSAGE_S / moment.interval_s))
        for begin in range(0, ticks, each):
            end = min(ticks, begin + each)
            start_ns = moment.time_ns - int((ticks - 1 - begin) * moment.interval_s * 1e9)
            tx, rx = (self._wide(each[:, begin:end]) for each in (self.tx_bps, self.rx_bps))
            rate = moment.line_rate_bps
            study.accept(Passage(start_ns, moment.interval_s, moment.fabric, tx, rx, rate))
        told = study.result(stepped=(ALL, JOB, RAIL, PAIR))
        if not self.left_out:
            return told
        note = f"{self.left_out} of {self.left_out + len(self.rows)} ports: a filter chooses which"
        return msgspec.structs.replace(told, notes=(*told.notes, note))

    def _wide(self, values: Floats) -> Floats:
        """[ticks, ports] of [rows, ticks]."""
        wide = np.full((values.shape[1], len(self.moment.up)), np.nan, np.float32)
        wide[:, list(self.rows)] = values.T
        return wide


def recent(moment: Moment, wanted: Collection[int] | None = None) -> Recent:
    """A copy of the last minutes of the fabric's ports, those in `wanted` (None: of all)."""
    rows = [
        port.row
        for port in moment.fabric.ports
        if port.role in FABRIC and port.node and (wanted is None or port.row in wanted)
    ]
    chosen = rows[:MOST_PORTS]
    tx, rx = (moment.window(way, chosen, RING_TICKS) for way in ("tx_bps", "rx_bps"))
    return Recent(moment, tuple(chosen), len(rows) - len(chosen), tx, rx)
