"""The last minutes of what is drawn: float32 rings, series-major, so that a chart is one slice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.moment import HEAT, Floats

_FIRST_ROWS = 64


class Ring:
    """`ticks` values of every HEAT column of every port, and of the busiest link of the fabric.

    Ticks are addressed by their sequence number; one that was never appended reads as NaN.
    """

    def __init__(self, ticks: int) -> None:
        self.ticks = ticks
        self._heat = np.full((len(HEAT), _FIRST_ROWS, ticks), np.nan, np.float32)
        self._worst = np.full(ticks, np.nan, np.float32)
        self._last = -1

    def append(self, seq: int, heat: Floats, worst: float) -> None:
        """Keep [len(HEAT), ports] values of tick `seq`; sequence numbers skipped become gaps."""
        rows = heat.shape[1]
        self._make_room(rows)
        for missing in range(max(self._last + 1, seq - self.ticks + 1), seq):
            self._heat[:, :, missing % self.ticks] = np.nan
            self._worst[missing % self.ticks] = np.nan
        slot = seq % self.ticks
        self._heat[:, :rows, slot] = heat
        self._heat[:, rows:, slot] = np.nan
        self._worst[slot] = worst
        self._last = seq

    def window(self, column: str, rows: Sequence[int], ticks: int, end_seq: int) -> Floats:
        """[len(rows), ticks] up to and with `end_seq`; NaN for what is not kept (any more)."""
        slots, kept = self._slots(ticks, end_seq)
        picked: Floats = self._heat[HEAT.index(column)][np.asarray(rows, np.intp)][:, slots]
        picked[:, ~kept] = np.nan
        return picked

    def worst(self, ticks: int, end_seq: int) -> Floats:
        """[ticks] up to and with `end_seq`; NaN for what is not kept (any more)."""
        slots, kept = self._slots(ticks, end_seq)
        picked: Floats = self._worst[slots]
        picked[~kept] = np.nan
        return picked

    def _slots(self, ticks: int, end_seq: int) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        seqs = np.arange(end_seq - ticks + 1, end_seq + 1)
        kept = (seqs > self._last - self.ticks) & (seqs <= self._last) & (seqs >= 0)
        return seqs % self.ticks, kept

    def _make_room(self, rows: int) -> None:
        have = self._heat.shape[1]
        if rows > have:
            larger = np.full((len(HEAT), max(rows, 2 * have), self.ticks), np.nan, np.float32)
            larger[:, :have] = self._heat
            self._heat = larger
