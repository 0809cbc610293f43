"""Which columns of a block may predict which."""

from __future__ import annotations

import numpy as np

from fabmon.fabric.wire.messages import Hello
from fabmon.recording.writing.similar_columns import prediction_choice
from tests import work
from tests.builders import hello, port


def _kind(ports: int) -> Hello:
    return hello(*(port(f"eth{number}", f"eth{number}") for number in range(ports)))


def test_columns_of_an_object_are_similar_to_those_of_the_first_one_with_the_same_metrics() -> None:
    one, two = _kind(1), _kind(2)
    metrics = len(one.blocks[0].objects[0].metrics)

    choice = prediction_choice([one, two, one, two, two])

    like, unit = choice._like.tolist(), choice._unit.tolist()
    # A node: number, clock, wall clock, the clock of the block, its ports.
    first = 4
    widths = [4 + ports * metrics for ports in (1, 2, 1, 2, 2)]
    start = 0
    for number, width in enumerate(widths):
        assert like[start : start + 4] == [-1, -1, start + 1, start + 1]
        for place in range(start + 4, start + width, metrics):
            is_first = number == 0
            expected = [-1] * metrics if is_first else list(range(first, first + metrics))
            assert like[place : place + metrics] == expected
            assert len(set(unit[place : place + metrics])) == 1
        start += width
    runs = 1 + np.count_nonzero(np.diff(unit))
    assert runs == len(set(unit)), "an object has a unit of its own"


def test_a_thousand_nodes_of_a_kind_take_the_work_of_a_few() -> None:
    """All objects of a thousand nodes take 0.1 s, in which no key is handled."""
    kind = _kind(50)

    def lines(nodes: int) -> int:
        with work.counted() as done:
            prediction_choice([kind] * nodes)
        return done.lines

    by_node = (lines(24) - lines(4)) / 20
    assert by_node < lines(4) / 20
