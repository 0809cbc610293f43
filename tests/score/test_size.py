"""How the code and the numbers that decide are counted."""

from __future__ import annotations

import pytest

from tests.score.size import numeric_constants, size


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("_LEAST = 0.1\nMOST = 3\n_BELOW = -1", 3),
        ("_A, _B = 0.75, 0.25", 2),
        ("_EDGES = (0.0, 0.5)\n_NOTHING = ()", 1),
        ("_TYPED: float = 0.5\n_DECLARED: float", 1),
        ("_NAME = 'a'\n_IS = True\n_MADE = 1 << 16\n_MIXED = (1, 'a')", 0),
        ("small = 1\ndef f() -> None:\n    _INSIDE = 1\nclass C:\n    OF_CLASS = 1", 0),
    ],
)
def test_constants_are_names_of_a_module_bound_to_numbers(source: str, count: int) -> None:
    assert numeric_constants(source) == count


def test_the_size_is_of_files_that_exist_and_a_table_that_is_read() -> None:
    of = size()
    assert of.lines > 500
    assert of.settings > 10
    assert of.thresholds == of.settings + of.constants
