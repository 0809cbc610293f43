"""Mean and highest values of ports in bins of time."""

import numpy as np

from fabmon.fabric.measures import known_mean, known_sum
from fabmon.history.bins import PortBins

NAN = float("nan")


def test_a_bin_has_what_is_known_also_of_ports_that_come_later() -> None:
    bins = PortBins(2)
    bins.add(np.array([1, NAN], np.float32), (0, 1))
    bins.add(np.array([3, NAN, 7], np.float32), (1,))
    assert np.array_equal(bins.mean, [[1.0, 2.0], [NAN, NAN], [NAN, 7.0]], equal_nan=True)
    assert np.array_equal(bins.highest, [[1.0, 3.0], [NAN, NAN], [NAN, 7.0]], equal_nan=True)
    kept = bins.copy()
    bins.move(1)
    assert np.array_equal(bins.mean, [[2.0, NAN], [NAN, NAN], [7.0, NAN]], equal_nan=True)
    assert kept.of_row(0) == (1, 1)
    assert np.isnan(kept.of_row(1)).all()
    assert np.isnan(kept.of_row(9)).all(), "a port of another time"


def test_sums_and_means_are_of_what_is_known() -> None:
    values = np.array([[1, NAN, 3], [NAN, NAN, NAN]], np.float32)
    assert np.array_equal(known_sum(values), [4.0, NAN], equal_nan=True)
    assert np.array_equal(known_mean(values), [2.0, NAN], equal_nan=True)
    assert np.isnan(known_mean(values[:, :0])).all(), "no tick"
