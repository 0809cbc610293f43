"""Medians and quantiles are numpy's, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from fabmon.analysis.median import median, quantile


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_they_are_those_of_numpy_bit_for_bit(dtype: type[np.floating]) -> None:
    rng = np.random.default_rng(1)
    for count in range(1, 90):
        values = rng.exponential(1e9, count).astype(dtype)
        assert median(values) == float(np.median(values))
        doubles = values.astype(np.float64)
        for share in (0.02, 0.25, 0.5, 0.9, 0.98):
            assert quantile(doubles, share) == float(np.quantile(doubles, share))


def test_what_is_not_known_has_no_median() -> None:
    assert np.isnan(median(np.array([1.0, np.nan, 2.0])))
    assert np.isnan(median(np.empty(0)))
