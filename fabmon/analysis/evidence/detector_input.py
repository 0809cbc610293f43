"""The input of every detector: a snapshot, its fabric's structure, the last ticks as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, reduce
from typing import Any, TypeVar, TypeVarTuple

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.fabric_structure import NONE, FabricStructure, Rows
from fabmon.analysis.finding import Condition
from fabmon.analysis.iteration.results import NO_ITERATIONS, IterationReport
from fabmon.fabric.measures import known_mean
from fabmon.fabric.snapshot import Floats, Snapshot, shares_of_line

T = TypeVar("T")
Args = TypeVarTuple("Args")

TICKS = 10
"""Ticks of history in every window, the current one included."""

WINDOW_TICKS = 40
"""Ticks of traffic that are compared where a job is judged as a whole: more than one iteration of
most jobs, also of those that compute for long."""

_MAX_IDLE_ROWS = 8
"""Ports of a finding that decide whether it is idle: the ones at fault come first."""

_IDLE_UTIL = 0.01
"""Share of line rate, 0 to 1, below which a port is idle: management traffic stays under it."""


class DetectorInput:
    """One tick, with what came before it. Arrays are computed when they are first asked for.

    `iterations` are those of jobs up to the tick before. What is open is not part of it: a rule
    that demands less to go on than to begin keeps what it found itself.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        structure: FabricStructure,
        iterations: IterationReport = NO_ITERATIONS,
    ) -> None:
        self.snapshot = snapshot
        self.structure = structure
        self.iterations = iterations
        self._memo: dict[tuple[Any, ...], Any] = {}

    def once(self, compute: Callable[[DetectorInput, *Args], T], *args: *Args) -> T:
        """`compute(self, *args)`, computed once in a tick for all detectors. Args are hashable."""
        key = (compute, *args)
        if key not in self._memo:
            self._memo[key] = compute(self, *args)
        found: T = self._memo[key]
        return found

    def window(self, column: str) -> Floats:
        """[ports, TICKS] of a HEAT column, oldest first; NaN for absent values.

        All ports' rates are between the same instants, whenever each was sampled: the values of a
        tick of `snapshot.window` may be of up to an interval earlier or later.
        """
        return self.once(_window, column, TICKS)

    def filled(self, column: str) -> Floats:
        """[ports, TICKS] of a HEAT column, 0 for absent values. Shared: do not modify."""
        return self.once(_filled, column)

    def total(self, column: str) -> Floats:
        """[ports]: the sum of a HEAT column over TICKS, absent as 0. Shared: do not modify."""
        return self.once(_total, column)

    def util(self, direction: str) -> Floats:
        """[ports, TICKS]: share of line rate sent (`tx`) or received (`rx`); NaN of a port that is
        down, and of a rate that its line does not allow."""
        return self.once(_util, direction)

    @cached_property
    def sent(self) -> Floats:
        """[ports, TICKS]: share of line rate sent, 0 for absent values. Shared: do not modify."""
        return without_nan(self.util("tx"))

    @cached_property
    def mean_sent(self) -> Floats:
        """[ports]: the mean of `sent`. Shared: do not modify."""
        mean: Floats = total_of(self.util("tx")) / np.float32(TICKS)
        return mean

    @cached_property
    def peak_sent(self) -> Floats:
        """[ports]: the most of `sent`. Shared: do not modify."""
        return without_nan(np.fmax.reduce(self.util("tx"), axis=1))

    @cached_property
    def received(self) -> Floats:
        """[ports, TICKS]: share of line rate that enters a port, the larger of what it counts as
        received and what its peer counts as sent; NaN where neither is known."""
        sent, received = self.util("tx"), self.util("rx").copy("K")
        for of_tick, far in zip(received.T, sent.T, strict=True):
            np.fmax(of_tick, np.append(far, np.float32(np.nan))[self.structure.peer], out=of_tick)
        return received

    @cached_property
    def received_filled(self) -> Floats:
        """`received` with 0 for absent values. Shared: do not modify."""
        return without_nan(self.received)

    def often(self, column: str, above: float, of_ticks: int, ticks: int) -> NDArray[np.bool_]:
        """[ports]: whether a HEAT column was above a level in `ticks` of the last `of_ticks`."""
        with np.errstate(invalid="ignore"):
            return count_ticks(self.window(column)[:, -of_ticks:] > above) >= ticks

    @cached_property
    def has_rdma_counters(self) -> NDArray[np.bool_]:
        """[ports]: whether a rail counts CNPs, marks or credits: RDMA fills links to 97 % and more,
        TCP to 93 %."""
        found: NDArray[np.bool_] = np.zeros(len(self.structure.peer), np.bool_)
        for column in ("cnp", "stall", "ecn"):
            if not found[self.structure.is_rail].all():
                found |= has_values(self.window(column))
        return found

    def is_idle(self, rows: Sequence[int]) -> bool:
        """Whether all of some ports are idle now, so that nothing can be said of their traffic;
        False for no ports. Of many, the first ones decide."""
        if not rows:
            return False
        return all(self._is_idle[row] for row in rows[:_MAX_IDLE_ROWS])

    @cached_property
    def _is_idle(self) -> bytes:
        """[ports]: 1 for an idle port. Bytes are the fastest to look up one by one."""
        with np.errstate(invalid="ignore"):
            used = np.fmax(self.util("tx")[:, -1], self.received[:, -1])
            idle: NDArray[np.bool_] = used < _IDLE_UTIL
        return idle.tobytes()

    def pauses_peer(self, row: int) -> Floats:
        """[TICKS]: share of time that a port pauses its peer, the larger of what both ends count
        (`xmit_wait` of the peer on InfiniBand); 0 for absent values."""
        peer = int(self.structure.peer[row])
        own = self.window("pause_tx")[row]
        if peer >= 0:
            own = np.fmax(own, np.fmax(self.window("pause_rx")[peer], self.window("stall")[peer]))
        paused: Floats = np.nan_to_num(own)
        return paused

    def series(self, column: str, rows: Rows, ticks: int) -> Floats:
        """[*rows.shape, ticks] of a HEAT column, oldest first, between the same instants; NaN where
        absent. At most the last 40 ticks of traffic, TICKS of the other columns."""
        snapshot = self.snapshot
        window = snapshot.aligned.window(column, ticks, snapshot.seq, rows.ravel())
        by_tick: Floats = window.T.reshape(ticks, *rows.shape)
        return by_tick.transpose(*range(1, by_tick.ndim), 0)

    def leaving(self, rows: Rows, ticks: int) -> Floats:
        """[rows, ticks]: bits/s that leave ports, as they count, else as their peers do, before
        that begins the mean of it; NaN where neither is known."""
        return self._either("tx_bps", "rx_bps", rows, ticks)

    def entering(self, rows: Rows, ticks: int) -> Floats:
        """[rows, ticks]: bits/s that enter ports, as they count, else as their peers do, before
        that begins the mean of it; NaN where neither is known."""
        return self._either("rx_bps", "tx_bps", rows, ticks)

    def link_lines_bps(self, rows: Rows) -> Floats:
        """[rows]: the line rates of the links of ports, as either end has it; NaN where unknown."""
        lines = np.append(self.snapshot.line_rate_bps, np.float32(np.nan))
        line: Floats = np.fmax(lines[rows], lines[self.structure.peer[rows]])
        return line

    def _either(self, own: str, other: str, rows: Rows, ticks: int) -> Floats:
        counted = self.series(own, rows, ticks)
        peer = self.structure.peer[rows]
        missing = np.isnan(counted).any(axis=1)
        if missing.any():
            # Of neighbouring ports both are views of what is kept.
            theirs = self.series(other, peer[missing], ticks)
            theirs = np.where((peer[missing] == NONE)[:, None], np.float32(np.nan), theirs)
            counted = counted.copy()
            counted[missing] = _from_begin(
                np.where(np.isnan(counted[missing]), theirs, counted[missing])
            )
        return counted

    @cached_property
    def traffic_bps(self) -> Floats:
        """[ports, 40]: bits/s sent or received, the larger, over the last 40 ticks."""
        sent, received = (self.once(_window, each, WINDOW_TICKS) for each in ("tx_bps", "rx_bps"))
        larger: Floats = np.fmax(sent, received)
        return larger


def _window(inputs: DetectorInput, column: str, ticks: int) -> Floats:
    return inputs.snapshot.aligned.window(column, ticks, inputs.snapshot.seq)


def _filled(inputs: DetectorInput, column: str) -> Floats:
    return without_nan(inputs.window(column))


def _total(inputs: DetectorInput, column: str) -> Floats:
    return total_of(inputs.window(column))


def _util(inputs: DetectorInput, direction: str) -> Floats:
    snapshot = inputs.snapshot
    lines: Floats = np.where(snapshot.up == 0, np.float32(np.nan), snapshot.line_rate_bps)
    return shares_of_line(inputs.window(f"{direction}_bps"), lines[:, None])


# Windows [ports, ticks] have the ports of a tick beside each other in memory. What follows keeps to
# that order, which is up to ten times as fast as the operators of numpy that do not.


def _from_begin(rates: Floats) -> Floats:
    """[rows, ticks], with the mean of what is known for NaN before that begins: after a start nodes
    are read one after another, and a link that is known earlier than its ends would seem busier
    than they are."""
    has_begun = np.logical_or.accumulate(np.isfinite(rates), axis=1)
    return np.where(has_begun, rates, known_mean(rates)[:, None])


def without_nan(rates: Floats) -> Floats:
    """Rates, which are never negative, with 0 for NaN."""
    filled: Floats = np.fmax(rates, np.float32(0))
    return filled


def total_of(*windows: Floats) -> Floats:
    """[ports]: the sum over the ticks of the larger of some windows, absent as 0."""
    # Tick by tick: what a processor's cache does not hold takes several times as long.
    total = np.zeros(len(windows[0]), np.float32)
    for of_tick in zip(*(each.T for each in windows), strict=True):
        total += reduce(np.fmax, of_tick, np.float32(0))
    return total


def count_ticks(holds: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """[ports]: the number of ticks, fewer than 256, in which something [ports, ticks] holds."""
    ticks: NDArray[np.uint8] = np.add.reduce(holds, axis=1, dtype=np.uint8)
    return ticks


def has_values(window: Floats) -> NDArray[np.bool_]:
    """[ports]: whether a window [ports, ticks] has a value in any tick."""
    known: NDArray[np.bool_] = ~np.isnan(np.fmax.reduce(window, axis=1))
    return known


Detector = Callable[[DetectorInput], Iterable[Condition]]
"""The rule of a cause: the conditions that hold at a tick, persistence included.

It is called once for every tick, in order. History comes from its input; it keeps only what no
input has (when the carrier of a port was seen to change, which counters were saturated before).
"""
