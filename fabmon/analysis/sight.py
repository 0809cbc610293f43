"""What detectors look at: a moment, the structure of its fabric, and the last ticks as arrays."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.structure import Structure
from fabmon.fabric.moment import Floats, Moment

if TYPE_CHECKING:
    from fabmon.analysis.group_load import Load
    from fabmon.analysis.pause_graph import Pauses

TICKS = 10
"""Ticks that a detector may look back at."""

_PHASE_TICKS = 60
_COMMUNICATES = 0.3
"""Share of the usual traffic above which the job is said to communicate, not to compute."""


class Sight:
    """One tick, seen with what came before. Windows are made when they are first asked for."""

    def __init__(self, moment: Moment, structure: Structure) -> None:
        self.moment = moment
        self.structure = structure
        self.group_loads: list[Load] | None = None
        self.pauses: Pauses | None = None
        self._windows: dict[str, Floats] = {}

    def window(self, column: str, ticks: int = TICKS) -> Floats:
        """[ports, ticks] of a HEAT column, oldest first; NaN for what is not known."""
        known = self._windows.get(column)
        if known is None or known.shape[1] < ticks:
            rows = range(len(self.moment.fabric.ports))
            known = self._windows[column] = self.moment.window(column, rows, max(ticks, TICKS))
        return known[:, -ticks:]

    def util(self, way: str) -> Floats:
        """[ports, TICKS]: share of line rate sent (`tx`) or received (`rx`); NaN of a dead port."""
        return self._tx_util if way == "tx" else self._rx_util

    @cached_property
    def _tx_util(self) -> Floats:
        return self._share("tx_bps")

    @cached_property
    def _rx_util(self) -> Floats:
        return self._share("rx_bps")

    def _share(self, column: str) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            util: Floats = self.window(column) / self.moment.line_rate_bps[:, None]
        util[self.moment.up == 0] = np.nan
        return util

    def often(self, column: str, above: float, of: int, least: int) -> NDArray[np.bool_]:
        """[ports]: whether a HEAT column was above a level in `least` of the last `of` ticks."""
        with np.errstate(invalid="ignore"):
            times: NDArray[np.intp] = (self.window(column)[:, -of:] > above).sum(axis=1)
        return times >= least

    @cached_property
    def communicates(self) -> NDArray[np.bool_]:
        """[TICKS]: whether the fabric was in a communication phase.

        A tick counts when the rails together send more than 30 % of their 95th percentile over the
        last minute: outside of these, everything is even because everything is idle.
        """
        rows = np.flatnonzero(self.structure.is_rail)
        if not len(rows):
            rows = np.flatnonzero(self.structure.is_carrier)
        if not len(rows):
            return np.zeros(TICKS, np.bool_)
        sent = np.nansum(self.moment.window("tx_bps", rows.tolist(), _PHASE_TICKS), axis=0)
        usual = float(np.percentile(sent, 95))
        above: NDArray[np.bool_] = sent[-TICKS:] > _COMMUNICATES * usual
        return above & (usual > 0)
