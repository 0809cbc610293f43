"""Who waits for whom, as a graph of nodes."""

from __future__ import annotations

import numpy as np
import pytest

from fabmon.analysis.evidence.pause_graph import PauseGraph


def chain(nodes: int, *more: tuple[int, int]) -> PauseGraph:
    """Row n belongs to node n + 1, which waits for node n; `more` are (node, node it waits for)."""
    waits = [*((number + 1, number) for number in range(nodes - 1)), *more]
    by_holder: dict[int, list[int]] = {}
    for row, (_, holder) in enumerate(waits):
        by_holder.setdefault(holder, []).append(row)
    nobody = np.zeros(len(waits), np.bool_)
    return PauseGraph(
        held=nobody,
        holds=nobody,
        share=np.zeros(len(waits), np.float32),
        _by_holder=by_holder,
        _node=np.array([waiter for waiter, _ in waits], np.intp),
    )


@pytest.mark.parametrize("nodes", [3, 2000])
def test_a_chain_is_no_circle_however_long(nodes: int) -> None:
    assert chain(nodes).loop(0) == []


@pytest.mark.parametrize("nodes", [3, 2000])
def test_a_circle_is_followed_all_the_way_round(nodes: int) -> None:
    circle = chain(nodes, (0, nodes - 1))
    assert circle.loop(0) == list(reversed(range(nodes)))
    assert set(circle.loop(nodes // 2)) == set(range(nodes))


def test_who_waits_for_a_circle_is_not_in_it() -> None:
    graph = chain(3, (0, 2), (3, 1))
    assert graph.loop(3) == []
    assert graph.loop(1) != []


def test_of_two_circles_the_shorter_is_told() -> None:
    assert chain(5, (0, 4), (0, 1)).loop(0) == [5, 0]
