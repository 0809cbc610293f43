"""Measures of ports, each of some columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fabmon.fabric.measures import measure
from tests.tui.worlds import COLLISION


def test_a_measure_is_the_greatest_of_all_its_columns() -> None:
    """A third one was left out of the values of now."""
    columns = ("stall", "bus", "pause_rx")
    snapshot = COLLISION.scene(30).snapshot
    of_last = measure("pause-rx").values(snapshot)
    assert np.nanmax(of_last) > 0
    three = replace(measure("pause-rx"), columns=columns)
    expected = np.fmax.reduce([snapshot.column(column) for column in columns])
    np.testing.assert_array_equal(three.values(snapshot), expected)
    assert np.nanmax(three.values(snapshot)) >= np.nanmax(of_last)
