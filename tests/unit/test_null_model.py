"""The null model against the published table, and as the evidence of a finding."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fabmon.analysis.evidence.null_model import (
    compare_with_hashing,
    effective_flows,
    hashing_evidence,
    occupied_at_most,
    peak_to_average_p95,
)
from fabmon.analysis.finding import WARNING, Condition, Evidence
from fabmon.analysis.model.causes import hashing
from tests import work

TABLE = (
    # flows, links, p95 of max/mean, mean CoV, share of idle links
    (8, 8, 4.0, 0.94, 0.34),
    (16, 8, 3.0, 0.66, 0.12),
    (32, 16, 3.0, 0.68, 0.13),
    (64, 8, 1.9, 0.33, 0.00),
    (64, 16, 2.5, 0.48, 0.02),
    (128, 16, 2.0, 0.34, 0.00),
    (256, 16, 1.7, 0.24, 0.00),
    (1024, 32, 1.6, 0.17, 0.00),
)
"""Equal flows hashed at random, 6000 trials, to one decimal; one flow more is 0.03 of the last."""


@pytest.mark.parametrize(("flows", "links", "p95", "cov", "idle"), TABLE)
def test_random_hashing_is_as_uneven_as_the_table_says(
    flows: int, links: int, p95: float, cov: float, idle: float
) -> None:
    assert peak_to_average_p95(flows, links) == pytest.approx(p95, abs=0.08)
    assert np.sqrt((links - 1) / flows) == pytest.approx(cov, abs=0.02)
    chances = [occupied_at_most(used, flows, links) for used in range(links + 1)]
    expected = links - sum(1 - each for each in chances[:-1])
    assert expected / links == pytest.approx(idle, abs=0.01)


@pytest.mark.parametrize("links", [2, 8, 32, 64])
def test_what_chance_does_to_many_flows_is_known_at_once(links: int) -> None:
    """A tick of a large fabric asks for many numbers of flows, and has 20 ms for all it does."""
    sizes = range(4096 - 20, 4096)
    with work.counted() as done:
        found = [peak_to_average_p95(flows, links) for flows in sizes]
    assert done.lines / len(sizes) < 5_000
    assert all(1 < each < 1.5 for each in found)


def test_few_flows_on_many_links_are_counted_one_by_one() -> None:
    assert peak_to_average_p95(1, 8) == 8.0
    assert peak_to_average_p95(2, 2) == 2.0
    # Of 2 flows, 1 in 512 meets the other; of 30, more than 1 in 20 pairs do.
    assert peak_to_average_p95(2, 512) == 256.0
    assert peak_to_average_p95(30, 512) == pytest.approx(2 * 512 / 30)


def test_the_number_of_flows_is_found_again() -> None:
    rng = np.random.default_rng(3)
    found = [
        effective_flows(np.bincount(rng.integers(0, 16, 64), minlength=16).astype(np.float32))
        for _ in range(400)
    ]
    assert float(np.median(found)) == pytest.approx(64, rel=0.1)


def of(*items: Evidence) -> Condition:
    return Condition(
        cause="ecmp_collision",
        severity=WARNING,
        subject="leaf1/up1",
        rows=(0,),
        text="",
        evidence=items,
        advice="",
        confidence=1.0,
    )


def test_a_finding_tells_what_chance_would_do() -> None:
    seen, usual = hashing_evidence(2.1, 8, 8)
    found = compare_with_hashing(
        of(seen, usual, Evidence("effective flows", 8, "flows"), Evidence("group links", 8))
    )
    assert found is not None
    assert (found.flows, found.links, found.usual, found.seen) == (8, 8, 4.0, 2.1)
    assert found.explains


def test_flows_that_were_counted_are_believed_before_those_that_it_looks_like() -> None:
    seen, usual = hashing_evidence(8.0, 12, 8)
    flows = (Evidence("effective flows", 1.2), Evidence("flows, at least", 12))
    found = compare_with_hashing(of(seen, usual, *flows, Evidence("group links", 8)))
    assert found is not None
    assert found.flows == 12
    assert not found.explains


def test_where_nobody_asked_chance_it_says_nothing() -> None:
    assert compare_with_hashing(of(Evidence("group mean", 97.7, "%"))) is None


@pytest.mark.parametrize(("effective", "unit"), [(4.0, "of 96 QPs"), (1663.0, "flows")])
def test_more_effective_flows_than_queue_pairs_are_not_some_of_them(
    effective: float, unit: str
) -> None:
    """A group that is more even than its queue pairs would make it."""
    found = SimpleNamespace(
        group=SimpleNamespace(routing=SimpleNamespace(may_hash=True)),
        effective_flows=effective, busy=0.2, group_busy=0.1, links=32, row=0,
    )  # fmt: skip
    snapshot = SimpleNamespace(connections=SimpleNamespace(once=lambda *_: (96, 0)))
    said = {each.name: each for each in hashing(cast(Any, snapshot), cast(Any, found))}
    assert said["effective flows"].unit == unit
