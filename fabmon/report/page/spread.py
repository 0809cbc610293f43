"""How much rates of equal links differ, and go up and down: percentiles over hosts and time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.model import RAIL, Fabric
from fabmon.fabric.moment import Floats, Moment
from fabmon.report.page.bins import Bins

SHARES = (0.05, 0.5, 0.95)
_STEPS = 1000


@dataclass(frozen=True, slots=True)
class RailSpread:
    """One rail: [3, bins] 5th, 50th, 95th percentile of what its hosts send, as a share of line
    rate, NaN where nothing is known; and the same of all samples together. `line_rate_bps` is the
    greatest of its ports, NaN where none is known.
    """

    label: str
    hosts: int
    line_rate_bps: float
    bins: Floats
    whole: tuple[float, float, float]


class Spread:
    """Takes moments; keeps a bin's samples until it is over, and a histogram of all."""

    def __init__(self, bins: Bins) -> None:
        self._bins = bins
        self._fabric: Fabric | None = None
        self._rows: dict[str, list[int]] = {}
        self._held: dict[str, list[Floats]] = {}
        self._at = 0
        self._made: dict[str, Floats] = {}
        self._histograms: dict[str, NDArray[np.int64]] = {}
        self._line_rates: dict[str, float] = {}

    def add(self, moment: Moment) -> None:
        """One tick."""
        at = self._bins.of(moment.time_ns)
        if at != self._at:
            self._finish()
            self._at = at
        if self._fabric is not moment.fabric:
            self._fabric = moment.fabric
            self._rows = {}
            for node in moment.fabric.nodes:
                for port in node.ports:
                    if port.role == RAIL:
                        self._rows.setdefault(port.label, []).append(port.row)
        for label, rows in self._rows.items():
            values = moment.tx_util[rows]
            self._held.setdefault(label, []).append(values[np.isfinite(values)])
            line = float(np.fmax.reduce(moment.line_rate_bps[rows]))
            self._line_rates[label] = float(np.fmax(self._line_rates.get(label, np.nan), line))

    def rails(self) -> list[RailSpread]:
        """What became of each rail."""
        self._finish()
        return [
            RailSpread(
                label,
                len(self._rows.get(label, ())),
                self._line_rates[label],
                made,
                self._whole(label),
            )
            for label, made in self._made.items()
        ]

    def _finish(self) -> None:
        """Percentiles of the bin that is over."""
        for label, parts in self._held.items():
            values = np.concatenate(parts)
            empty = np.full((len(SHARES), self._bins.count), np.nan, np.float32)
            made = self._made.setdefault(label, empty)
            counts = self._histograms.setdefault(label, np.zeros(_STEPS + 1, np.int64))
            if len(values):
                made[:, self._at] = np.quantile(values, SHARES)
                steps = np.rint(np.clip(values, 0, 1) * _STEPS).astype(np.intp)
                counts += np.bincount(steps, minlength=_STEPS + 1)
        self._held = {}

    def _whole(self, label: str) -> tuple[float, float, float]:
        """From the histogram: to a thousandth of the line rate."""
        counts = np.cumsum(self._histograms[label])
        if not counts[-1]:
            return (float("nan"),) * 3
        low, middle, high = (
            int(np.searchsorted(counts, share * counts[-1])) / _STEPS for share in SHARES
        )
        return (low, middle, high)
