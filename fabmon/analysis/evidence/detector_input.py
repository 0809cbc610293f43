"""What detectors look at: a moment, the structure of its fabric, and the last ticks as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.fabric_structure import FabricStructure
from fabmon.analysis.finding import Condition
from fabmon.fabric.snapshot import Floats, Snapshot

if TYPE_CHECKING:
    from fabmon.analysis.evidence.attribution import FullReceivers
    from fabmon.analysis.evidence.group_load import Loads
    from fabmon.analysis.evidence.pause_graph import PauseGraph

TICKS = 10
"""Ticks that a detector may look back at."""

_RHYTHM_TICKS = 40


_LOOKED_AT = 8
_IDLE = 0.01
_CNPS_PER_S = 1.0
_HELD = 0.004
"""Share of time above which being told to wait is no accident."""


class DetectorInput:
    """One tick, seen with what came before. Windows are made when they are first asked for."""

    def __init__(
        self,
        snapshot: Snapshot,
        structure: FabricStructure,
        standing: Mapping[str, Condition] | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.structure = structure
        self.standing = standing or {}
        """The findings that are open, by key: what stays open may be weaker than what opens."""
        self.group_loads: Loads | None = None
        self.pauses: PauseGraph | None = None
        self.receivers: FullReceivers | None = None
        self._windows: dict[str, Floats] = {}
        self._filled: dict[str, Floats] = {}

    def window(self, column: str, ticks: int = TICKS) -> Floats:
        """[ports, ticks] of a HEAT column, oldest first; NaN for what is not known."""
        known = self._windows.get(column)
        if known is None or known.shape[1] < ticks:
            rows = range(len(self.snapshot.fabric.ports))
            known = self._windows[column] = self.snapshot.window(column, rows, max(ticks, TICKS))
        return known[:, -ticks:]

    def filled(self, column: str) -> Floats:
        """[ports, TICKS] of a HEAT column, 0 for what is not known; not to be changed."""
        filled = self._filled.get(column)
        if filled is None:
            # Made of whole numbers that were counted, so that nothing is below 0.
            filled = self._filled[column] = np.fmax(self.window(column), np.float32(0))
        return filled

    def util(self, way: str) -> Floats:
        """[ports, TICKS]: share of line rate sent (`tx`) or received (`rx`); NaN of a dead port."""
        return self._tx_util if way == "tx" else self._rx_util

    @cached_property
    def sent(self) -> Floats:
        """[ports, TICKS]: share of line rate sent, 0 for what is not known; not to be changed."""
        return np.fmax(self._tx_util, np.float32(0))

    @cached_property
    def got(self) -> Floats:
        """The same of what is `received`."""
        return np.fmax(self.received, np.float32(0))

    @cached_property
    def _tx_util(self) -> Floats:
        return self._share("tx_bps")

    @cached_property
    def _rx_util(self) -> Floats:
        return self._share("rx_bps")

    def _share(self, column: str) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            util: Floats = self.window(column) / self.snapshot.line_rate_bps[:, None]
        util[self.snapshot.up == 0] = np.nan
        return util

    def often(self, column: str, above: float, of: int, least: int) -> NDArray[np.bool_]:
        """[ports]: whether a HEAT column was above a level in `least` of the last `of` ticks."""
        with np.errstate(invalid="ignore"):
            times: NDArray[np.intp] = (self.window(column)[:, -of:] > above).sum(axis=1)
        return times >= least

    def is_idle(self, rows: Sequence[int]) -> bool:
        """Whether ports carry nothing now: what is wrong with their traffic cannot be seen."""
        if not rows:
            return False
        return all(self._is_idle[row] for row in rows[:_LOOKED_AT])

    @cached_property
    def _is_idle(self) -> bytes:
        """[ports]: 1 for what carries next to nothing now. Bytes are the fastest to look up."""
        with np.errstate(invalid="ignore"):
            idle: NDArray[np.bool_] = np.fmax(self._tx_util[:, -1], self.received[:, -1]) < _IDLE
        return idle.tobytes()

    def held_by(self, row: int) -> Floats:
        """[TICKS]: share of time that a port holds its peer, as either end saw it."""
        peer = int(self.structure.peer[row])
        own = self.window("pause_tx")[row]
        if peer >= 0:
            own = np.fmax(own, np.fmax(self.window("pause_rx")[peer], self.window("stall")[peer]))
        held: Floats = np.nan_to_num(own)
        return held

    @cached_property
    def told_to_slow(self) -> NDArray[np.bool_]:
        """[ports, TICKS]: whether a sender was slowed by a queue: CNPs, pause, or no credits."""
        with np.errstate(invalid="ignore"):
            told: NDArray[np.bool_] = self.window("cnp") > _CNPS_PER_S
            told |= self.window("pause_rx") > _HELD
            told |= self.window("stall") > _HELD
        return told

    @cached_property
    def slowed(self) -> NDArray[np.bool_]:
        """[ports]: whether a sender was told to slow in two of the last three ticks."""
        slowed: NDArray[np.bool_] = self.told_to_slow[:, -3:].sum(axis=1) >= 2
        return slowed

    @cached_property
    def marked(self) -> NDArray[np.bool_]:
        """[ports, TICKS]: whether what a receiver got had passed a queue."""
        with np.errstate(invalid="ignore"):
            told: NDArray[np.bool_] = self.window("ecn") > _CNPS_PER_S
            told |= self.window("cnp_sent") > _CNPS_PER_S
        return told

    @cached_property
    def rhythm(self) -> Floats:
        """[ports, 40]: bits/s sent or received, the larger, over the last 40 ticks."""
        ports = range(len(self.snapshot.up))
        sent, got = (self.snapshot.window(w, ports, _RHYTHM_TICKS) for w in ("tx_bps", "rx_bps"))
        larger: Floats = np.fmax(sent, got)
        return larger

    @cached_property
    def received(self) -> Floats:
        """[ports, TICKS]: share of line rate that enters a port, as either end counts it."""
        sent = np.vstack([self.util("tx"), np.full((1, TICKS), np.nan, np.float32)])
        received: Floats = np.fmax(self.util("rx"), sent[self.structure.peer])
        return received


Detector = Callable[[DetectorInput], Iterable[Condition]]
"""The rule of one cause: the conditions that hold at a tick, persistence included. It is called
once for every tick, in order."""
