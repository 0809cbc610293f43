"""Rows of few values give what numpy gives."""

from __future__ import annotations

import numpy as np
import pytest

from fabmon.recording.format.short_rows import reduced


@pytest.mark.parametrize("width", [1, 2, 5, 8, 9, 30])
@pytest.mark.parametrize("ufunc", [np.add, np.maximum, np.minimum, np.bitwise_or])
def test_rows_of_any_length_are_reduced(ufunc: np.ufunc, width: int) -> None:
    values = np.random.default_rng(7).integers(-(2**40), 2**40, (50, width))
    before = values.copy()
    assert (reduced(ufunc, values) == ufunc.reduce(values, axis=1)).all()
    assert (values == before).all()
    assert reduced(ufunc, values[:0]).shape == (0,)
