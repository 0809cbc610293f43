"""Whether a signal repeats, and after how long: autocorrelation, between the samples too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabmon.analysis.rhythm.pulses import Floats

SHORTEST_INTERVALS = 3.0
"""A period must be longer than this many sampling intervals to be claimed."""

_FINER = 8
_LEAST_STRENGTH = 0.45
_OF_BEST = 0.75
_LEAST_PERIODS = 3


@dataclass(frozen=True, slots=True)
class Repeat:
    """After how many `intervals` a signal looks like itself, and how much (correlation, to 1)."""

    intervals: float
    strength: float


def repeat(signal: Floats) -> Repeat | None:
    """The shortest lag at which the signal repeats about as well as it ever does.

    Three periods must be in it. None where nothing repeats, or only what is shorter than
    SHORTEST_INTERVALS.
    """
    longest = len(signal) // _LEAST_PERIODS
    if longest <= SHORTEST_INTERVALS:
        return None
    curve = correlation(signal, longest)
    if curve is None:
        return None
    inner = curve[1:-1]
    peaks_of_all = 1 + np.flatnonzero((inner >= curve[:-2]) & (inner > curve[2:]))
    peaks = peaks_of_all[peaks_of_all > SHORTEST_INTERVALS * _FINER]
    if not len(peaks):
        return None
    best = float(curve[peaks].max())
    if best < _LEAST_STRENGTH:
        return None
    fast = peaks_of_all[peaks_of_all <= SHORTEST_INTERVALS * _FINER]
    if len(fast) and float(curve[fast].max()) >= _OF_BEST * best:
        return None
    first = int(peaks[curve[peaks] >= _OF_BEST * best][0])
    return Repeat(first / _FINER, min(1.0, float(curve[first])))


def correlation(signal: Floats, longest: int) -> Floats | None:
    """Autocorrelation at lags 0 to `longest`, eight values an interval; None for a flat signal.

    Each lag is averaged over as many products as it has. Between the lags it is what a signal
    without faster parts would have (zeros appended to its spectrum).
    """
    centred = signal - signal.mean()
    power = float((centred * centred).mean())
    if power <= 0:
        return None
    size = 1 << (2 * len(signal) - 1).bit_length()
    spectrum = np.abs(np.fft.rfft(centred, size)) ** 2
    finer: Floats = np.fft.irfft(spectrum, size * _FINER)[: longest * _FINER + 1] * _FINER
    lags = np.arange(len(finer)) / _FINER
    return finer / (len(signal) - lags) / power
