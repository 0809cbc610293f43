from __future__ import annotations

import numpy as np

from fabmon.tui.text import chart

NAN = np.float32(np.nan)


def test_resampling_keeps_a_peak_of_one_sample() -> None:
    values = np.zeros(600, dtype=np.float32)
    values[301] = 1
    assert chart.resample(values, 60).max() == 1


def test_more_columns_than_samples_repeat_them() -> None:
    assert chart.resample(np.array([1, 2], np.float32), 4).tolist() == [1, 1, 2, 2]


def test_nothing_zero_and_gaps_are_drawn_apart() -> None:
    values = np.array([NAN, NAN, 0, 1, NAN, 0.5, 0], np.float32)
    assert chart.spark(values, 7, 1.0) == "  ▁█·▄▁"


def test_bars_in_two_rows() -> None:
    assert chart.bars(np.array([0.25, 0.5, 1.0], np.float32), 3, 2, 1.0) == ["  █", "▄██"]


def test_braille_is_filled_from_the_bottom() -> None:
    values = np.array([0, 1, 0.5, 0.5], np.float32)
    assert chart.braille(values, 2, 1, 1.0) == ["⣸⣤"]


def test_a_curve_of_nothing_is_blank() -> None:
    assert chart.braille(np.full(10, NAN), 5, 2, 1.0) == ["     ", "     "]
    assert chart.spark(np.full(10, NAN), 5, 1.0) == "     "
    assert chart.spark(np.array([], np.float32), 3, 1.0) == "   "


def test_bars_to_the_right() -> None:
    assert chart.hbar(0.5, 4) == "██  "
    assert chart.hbar(0.001, 4) == "▏   "
    assert chart.hbar(0.0, 4) == "    "
    assert chart.hbar(float("nan"), 4) == "    "
