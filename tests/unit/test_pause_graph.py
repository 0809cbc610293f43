"""The graph of pauses, its cycles and victims."""

from __future__ import annotations

import numpy as np
import pytest

from fabmon.analysis.evidence.pause_graph import PauseGraph


def chain(nodes: int, *more: tuple[int, int]) -> PauseGraph:
    """Row n belongs to node n + 1, which waits for node n; `more` are (node, node it waits for)."""
    waits = [*((number + 1, number) for number in range(nodes - 1)), *more]
    by_pauser: dict[int, list[int]] = {}
    for row, (_, pauser) in enumerate(waits):
        by_pauser.setdefault(pauser, []).append(row)
    nobody = np.zeros(len(waits), np.bool_)
    return PauseGraph(
        paused=nobody,
        pauses=nobody,
        share=np.zeros(len(waits), np.float32),
        _by_pauser=by_pauser,
        _node=np.array([waiter for waiter, _ in waits], np.intp),
    )


@pytest.mark.parametrize("nodes", [3, 2000])
def test_a_chain_is_no_cycle_however_long(nodes: int) -> None:
    assert chain(nodes).cycle(0) == []


@pytest.mark.parametrize("nodes", [3, 2000])
def test_a_cycle_is_followed_to_its_end(nodes: int) -> None:
    cycle = chain(nodes, (0, nodes - 1))
    assert cycle.cycle(0) == list(reversed(range(nodes)))
    assert set(cycle.cycle(nodes // 2)) == set(range(nodes))


def test_who_waits_for_a_cycle_is_not_in_it() -> None:
    graph = chain(3, (0, 2), (3, 1))
    assert graph.cycle(3) == []
    assert graph.cycle(1) != []


def test_of_two_cycles_the_shorter_is_returned() -> None:
    assert chain(5, (0, 4), (0, 1)).cycle(0) == [5, 0]
