"""What a burst shows that one sample a second hides, and how fast the counter really moves.

A NIC may refresh its counters more seldom than they are read: then most reads repeat the last
value, and the next seems to hold a moment of impossible speed. Rates are therefore those between
two moves of the counter where it moves like a clock, and the clock is told.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HOT = 0.9
PERCENTILES = (50, 95, 99)

_LEAST_MOVES = 4
_COARSE_SAMPLES = 1.6
"""A counter that moves at most every so many samples is slower than the reading."""

_LIKE_A_CLOCK = 0.35
_BACKGROUND = 0.02


@dataclass(frozen=True, slots=True)
class BurstSummary:
    """One direction of a port, in bits/s and seconds.

    `at_s` and `rate_bps` are the middle and the rate of every span between two values, evenly
    spaced or not. `resolution_s` is the shortest time that can be told apart: the reading's, or the
    counter's own where that is longer, and then `is_coarse`: its moves are so regular that it is
    refreshed by a clock (or the traffic comes in bursts as regular as one). `percentiles_bps` go
    with PERCENTILES. `hot_share` is the share of time above 90 % of line rate, `longest_hot_s` the
    longest stretch of it; both NaN where no line rate is known. `seconds_bps` is the greatest mean
    over a second: what one sample a second would have shown at most.
    """

    at_s: Floats
    rate_bps: Floats
    resolution_s: float
    is_coarse: bool
    percentiles_bps: tuple[float, ...]
    greatest_bps: float
    mean_bps: float
    hot_share: float
    longest_hot_s: float
    seconds_bps: float


def summarise_burst(at_s: Floats, counts: Floats, line_rate_bps: float) -> BurstSummary | None:
    """Judge bytes counted at these times; None with fewer than three values."""
    known = np.isfinite(counts)
    known[1:] &= np.diff(at_s) > 0
    at_s, counts = at_s[known], counts[known]
    grows = np.concatenate([[True], np.diff(counts) >= 0])
    if len(at_s) < 3 or not grows.all():
        return None
    reading_s = float(np.median(np.diff(at_s)))
    clock_s = _clock(at_s, counts, reading_s)
    if clock_s is not None:
        at_s, counts = _moves(at_s, counts, clock_s)
    spans = np.diff(at_s)
    rates = np.diff(counts) * 8 / spans
    hot = rates > HOT * line_rate_bps if line_rate_bps > 0 else None
    return BurstSummary(
        at_s=at_s[:-1] + spans / 2,
        rate_bps=rates,
        resolution_s=clock_s or reading_s,
        is_coarse=clock_s is not None,
        percentiles_bps=tuple(_weighted(rates, spans, share / 100) for share in PERCENTILES),
        greatest_bps=float(rates.max()),
        mean_bps=float((rates * spans).sum() / spans.sum()),
        hot_share=float("nan") if hot is None else float(spans[hot].sum() / spans.sum()),
        longest_hot_s=float("nan") if hot is None else _longest(hot, spans),
        seconds_bps=_greatest_second(at_s, counts),
    )


def _clock(at_s: Floats, counts: Floats, reading_s: float) -> float | None:
    """From one move of the counter to the next, where it moves slower than it is read, regularly.

    Long stillness is silence on the link; what counts is how it moves while something is sent.
    """
    moves = at_s[1:][np.diff(counts) > _BACKGROUND * float(np.diff(counts).max())]
    if len(moves) < _LEAST_MOVES:
        return None
    gaps = np.diff(moves)
    usual = float(np.quantile(gaps, 0.25))
    # The readings blur each of its moves by up to one of them.
    alike = gaps[gaps < max(1.5 * usual, usual + 2.5 * reading_s)]
    if usual < _COARSE_SAMPLES * reading_s or len(alike) < _LEAST_MOVES - 1:
        return None
    regular = float(alike.std()) <= _LIKE_A_CLOCK * float(alike.mean())
    return float(alike.mean()) if regular else None


def _moves(at_s: Floats, counts: Floats, clock_s: float) -> tuple[Floats, Floats]:
    """Times and values of a counter that is refreshed by a clock: where it moved.

    Before its first move nobody knows since when a value was true. After a silence, what it moved
    by was sent in the last turn of the clock.
    """
    moved = np.concatenate([[False], np.diff(counts) > 0])
    times, values = at_s[moved], counts[moved]
    silent = 1 + np.flatnonzero(np.diff(times) > 1.5 * clock_s)
    times = np.insert(times, silent, times[silent] - clock_s)
    values = np.insert(values, silent, values[silent - 1])
    return times, values


def _weighted(values: Floats, weights: Floats, share: float) -> float:
    """The value that is not exceeded for that share of the time."""
    order = np.argsort(values)
    passed = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(passed, share * passed[-1])])


def _longest(hot: NDArray[np.bool_], spans: Floats) -> float:
    longest = run = 0.0
    for is_hot, span in zip(hot.tolist(), spans.tolist(), strict=True):
        run = run + span if is_hot else 0.0
        longest = max(longest, run)
    return longest


def _greatest_second(at_s: Floats, counts: Floats) -> float:
    """The greatest mean over a whole second; over all of it when it is shorter."""
    total = float(at_s[-1] - at_s[0])
    if total <= 1:
        return float((counts[-1] - counts[0]) * 8 / total)
    starts = at_s[at_s <= at_s[-1] - 1]
    begin = np.interp(starts, at_s, counts)
    return float((np.interp(starts + 1, at_s, counts) - begin).max() * 8)
