"""Summary of a burst of samples: what one sample a second hides, and how often a counter updates.

A NIC may refresh its counters more rarely than they are read. Then most readings repeat the last
value, and the next one seems to show an impossible rate. Where a counter updates at regular
intervals, rates are therefore computed between two updates, and the interval is reported.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HOT = 0.9
"""Share of line rate, 0 to 1, above which a span counts as hot."""

PERCENTILES = (50, 95, 99)
"""Percentiles of the rate, by time, in a summary."""

_MIN_UPDATES = 4
"""Updates of a counter from which on its interval can be estimated."""

_COARSE_SAMPLES = 1.6
"""Readings between two updates from which on a counter is slower than the reading."""

_REGULAR = 0.35
"""Standard deviation over mean of the intervals up to which a counter updates regularly."""

_LONGER_GAP, _READING_BLUR = 1.5, 2.5
"""A gap between updates counts as one interval below the first times the usual gap, or below the
usual gap and the second times the reading interval; a longer one is a time without traffic."""

_BACKGROUND = 0.02
"""Share of the largest increase, 0 to 1, up to which an increase is background traffic."""


@dataclass(frozen=True, slots=True)
class BurstSummary:
    """One direction of a port, in bits/s and seconds.

    `at_s` and `rate_bps` are the middle and the rate of every span between two values, evenly
    spaced or not. `resolution_s` is the shortest time that can be distinguished: the reading
    interval, or the counter's own where that is longer. The latter is `is_coarse`: its updates are
    so regular that a timer makes them (or the traffic comes in bursts as regular).
    `percentiles_bps` correspond to PERCENTILES. `hot_share` is the share of time above 90 % of line
    rate, `longest_hot_s` the longest time of it; both NaN without a known line rate. `seconds_bps`
    is the greatest mean over a second: the most that one sample a second would have shown.
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
    """Summarise byte counts read at some times; None with fewer than three values or a decrease."""
    known = np.isfinite(counts)
    known[1:] &= np.diff(at_s) > 0
    at_s, counts = at_s[known], counts[known]
    grows = np.concatenate([[True], np.diff(counts) >= 0])
    if len(at_s) < 3 or not grows.all():
        return None
    reading_s = float(np.median(np.diff(at_s)))
    update_s = _update_interval_s(at_s, counts, reading_s)
    if update_s is not None:
        at_s, counts = _updates(at_s, counts, update_s)
    spans = np.diff(at_s)
    rates = np.diff(counts) * 8 / spans
    hot = rates > HOT * line_rate_bps if line_rate_bps > 0 else None
    return BurstSummary(
        at_s=at_s[:-1] + spans / 2,
        rate_bps=rates,
        resolution_s=update_s or reading_s,
        is_coarse=update_s is not None,
        percentiles_bps=tuple(_weighted(rates, spans, share / 100) for share in PERCENTILES),
        greatest_bps=float(rates.max()),
        mean_bps=float((rates * spans).sum() / spans.sum()),
        hot_share=float("nan") if hot is None else float(spans[hot].sum() / spans.sum()),
        longest_hot_s=float("nan") if hot is None else _longest(hot, spans),
        seconds_bps=_greatest_second(at_s, counts),
    )


def _update_interval_s(at_s: Floats, counts: Floats, reading_s: float) -> float | None:
    """The interval at which a counter updates, where it is regular and longer than the reading
    interval; else None.

    A long time without updates is a link without traffic; only updates during traffic count.
    """
    updates = at_s[1:][np.diff(counts) > _BACKGROUND * float(np.diff(counts).max())]
    if len(updates) < _MIN_UPDATES:
        return None
    gaps = np.diff(updates)
    usual = float(np.quantile(gaps, 0.25))
    # Each update is known only to within one reading interval.
    regular = gaps[gaps < max(_LONGER_GAP * usual, usual + _READING_BLUR * reading_s)]
    if usual < _COARSE_SAMPLES * reading_s or len(regular) < _MIN_UPDATES - 1:
        return None
    mean_s = float(regular.mean())
    return mean_s if float(regular.std()) <= _REGULAR * mean_s else None


def _updates(at_s: Floats, counts: Floats, update_s: float) -> tuple[Floats, Floats]:
    """Times and values of the updates of a counter that updates every `update_s`.

    How old the value before the first update is, is not known. After a time without traffic, what
    an update adds was sent in its last interval.
    """
    increased = np.concatenate([[False], np.diff(counts) > 0])
    times, values = at_s[increased], counts[increased]
    silent = 1 + np.flatnonzero(np.diff(times) > _LONGER_GAP * update_s)
    times = np.insert(times, silent, times[silent] - update_s)
    values = np.insert(values, silent, values[silent - 1])
    return times, values


def _weighted(values: Floats, weights: Floats, share: float) -> float:
    """The value that is not exceeded for a share of the time."""
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
    """The greatest mean over a second, bits/s; over the whole burst when it is shorter."""
    total = float(at_s[-1] - at_s[0])
    if total <= 1:
        return float((counts[-1] - counts[0]) * 8 / total)
    starts = at_s[at_s <= at_s[-1] - 1]
    begin = np.interp(starts, at_s, counts)
    return float((np.interp(starts + 1, at_s, counts) - begin).max() * 8)
