"""The time over which values are shown: one window for all of a screen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil

import numpy as np

from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.measures import known_mean
from fabmon.fabric.snapshot import MOST_OF_LINE_RATE, Floats, Snapshot

_SHORT_S, _LONG_S = 10, 60


class TimeWindow(StrEnum):
    """What a value is over: this tick, the maximum or the mean of 10 s, the mean of a minute, or
    the mean of an iteration. The maximum is of an iteration where that takes longer: between two
    exchanges a fabric is not idle."""

    TICK = "tick"
    MAX = "max"
    MEAN = "mean"
    MINUTE = "minute"
    STEP = "step"

    def next(self, has_steps: bool) -> TimeWindow:
        """The next one; that of an iteration only where one is known."""
        every = [each for each in TimeWindow if has_steps or each is not TimeWindow.STEP]
        return every[(every.index(self) + 1) % len(every)] if self in every else every[0]


@dataclass(frozen=True, slots=True)
class Span:
    """A window in ticks up to and including a snapshot's, 1 or more, and how it is written:
    `max of 10 s`."""

    ticks: int
    is_max: bool
    text: str

    def reduce(self, values: Floats) -> Floats:
        """[n] of [n, ticks]; NaN where nothing is known."""
        if self.is_max:
            highest: Floats = np.fmax.reduce(values, axis=1)
            return highest
        return known_mean(values)


def span(window: TimeWindow, snapshot: Snapshot, step_s: float = 0.0) -> Span:
    """A window up to a snapshot; `step_s` is the longest iteration of a job, 0 where none is known:
    then the mean of 10 s stands for that of an iteration."""
    if window is TimeWindow.TICK or snapshot.interval_s <= 0:
        return Span(1, True, "this tick")
    seconds: float = _LONG_S if window is TimeWindow.MINUTE else _SHORT_S
    is_max = window is TimeWindow.MAX
    is_step = step_s > seconds if is_max else window is TimeWindow.STEP and step_s > 0
    if is_step:
        seconds = step_s
    word = "max" if is_max else "mean"
    text = f"{word} of {seconds:.0f} s" + (", a step" if is_step else "")
    return Span(max(1, ceil(seconds / snapshot.interval_s)), is_max, text)


def over(snapshot: Snapshot, over_span: Span) -> Snapshot:
    """A snapshot whose HEAT columns and shares of line rate are those of a window. What is kept for
    no tick but its own, as right after a jump in a recording, is the value of that tick.

    Traffic from before the line rate changed, or that the line does not carry, is left out.
    """
    if over_span.ticks <= 1:
        return snapshot
    heat = snapshot.heat.copy()
    ports = range(heat.shape[1])
    for place, column in enumerate(HEAT):
        values = snapshot.window(column, ports, over_span.ticks)
        if column.endswith("_bps"):
            values = np.where(_is_other(values, snapshot), np.nan, values)
        values = over_span.reduce(values)
        np.copyto(heat[place], values, where=~np.isnan(values))
    heat[:, snapshot.stale] = snapshot.heat[:, snapshot.stale]
    with np.errstate(divide="ignore", invalid="ignore"):
        tx_util, rx_util = heat[:2] / snapshot.line_rate_bps
    return replace(snapshot, heat=heat, tx_util=tx_util, rx_util=rx_util)


def _is_other(values: Floats, snapshot: Snapshot) -> np.ndarray:
    """[ports, ticks]: traffic that is no share of the present line rate."""
    with np.errstate(invalid="ignore"):
        other: np.ndarray = values > MOST_OF_LINE_RATE * snapshot.line_rate_bps[:, None]
    ticks = values.shape[1]
    first_seq = snapshot.seq - ticks + 1
    if np.any(snapshot.rated_since >= first_seq):
        other |= np.arange(first_seq, snapshot.seq + 1) <= snapshot.rated_since[:, None]
    return other
