"""Max-min fairness against the slow and plain way, and against its definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fabmon.feeds.demo.congestion import fair_rates

Problem = tuple[list[float], list[tuple[int, int, float]], list[float]]


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Links with capacities; groups that load some of them, each with a demand."""
    links = draw(st.integers(1, 5))
    groups = draw(st.integers(1, 6))
    sizes = st.sampled_from([1.0, 2.0, 4.0, 10.0])
    capacity = [draw(st.sampled_from([0.0, 1.0, 3.0, 8.0])) for _ in range(links)]
    loads = [
        (link, group, draw(sizes))
        for group in range(groups)
        for link in sorted(draw(st.sets(st.integers(0, links - 1), max_size=links)))
    ]
    demand = [draw(st.sampled_from([0.5, 2.0, 100.0])) for _ in range(groups)]
    return capacity, loads, demand


def solved(problem: Problem) -> list[float]:
    capacity, loads, demand = problem
    link, group, weight = (np.array([each[i] for each in loads]) for i in range(3))
    return list(
        fair_rates(
            np.array(capacity),
            link.astype(np.intp),
            group.astype(np.intp),
            weight.astype(np.float64),
            np.array(demand),
        )
    )


def one_link_at_a_time(problem: Problem) -> list[float]:
    """Raise all rates together until a link is full or a demand met; go on with the others."""
    capacity, loads, demand = problem
    rate = [0.0] * len(demand)
    live = set(range(len(demand)))
    while live:
        steps = [demand[g] - rate[g] for g in live]
        for link, room in enumerate(capacity):
            load = sum(w for at, g, w in loads if at == link and g in live)
            if load:
                used = sum(w * rate[g] for at, g, w in loads if at == link)
                steps.append((room - used) / load)
        step = max(0.0, min(steps))
        for g in live:
            rate[g] += step
        full = {
            link
            for link, room in enumerate(capacity)
            if sum(w * rate[g] for at, g, w in loads if at == link) >= room - 1e-9
        }
        stopped = {g for g in live if rate[g] >= demand[g] - 1e-9}
        stopped |= {g for at, g, _ in loads if at in full and g in live}
        live -= stopped
    return rate


@given(problems())
def test_it_is_what_filling_one_link_at_a_time_gives(problem: Problem) -> None:
    np.testing.assert_allclose(solved(problem), one_link_at_a_time(problem), atol=1e-6)


@given(problems())
def test_who_gets_less_than_it_wants_is_among_the_largest_on_a_full_link(problem: Problem) -> None:
    capacity, loads, demand = problem
    rate = solved(problem)
    used = [sum(w * rate[g] for at, g, w in loads if at == link) for link in range(len(capacity))]
    assert all(u <= c * (1 + 1e-6) + 1e-6 for u, c in zip(used, capacity, strict=True))
    for g, (got, wanted) in enumerate(zip(rate, demand, strict=True)):
        if got >= wanted - 1e-6:
            continue
        bottlenecks = [
            at
            for at, group, _ in loads
            if group == g
            and used[at] >= capacity[at] - 1e-6
            and all(rate[other] <= got + 1e-6 for where, other, _ in loads if where == at)
        ]
        assert bottlenecks
