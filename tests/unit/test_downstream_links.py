"""Of full links in a row, the queue is before the first one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.downstream_links import without_downstream
from fabmon.analysis.evidence.full_link import FullLink
from fabmon.analysis.fabric_structure import LinkGroup, Rows
from fabmon.fabric.snapshot import Floats

UP, SPINE_IN, DOWN, LEAF_IN = range(4)
"""leaf1's uplink, its other end at the spine, the spine's link into leaf2, and its other end."""


class Row:
    """Two full links after each other: leaf1 to a spine, and that spine to leaf2."""

    structure = SimpleNamespace(
        peer=np.array([SPINE_IN, UP, LEAF_IN, DOWN]), node=np.array([0, 1, 1, 2])
    )

    def __init__(self, up_gbps: float, down_gbps: float) -> None:
        self._sent = np.array([up_gbps, 0, down_gbps, 0]) * 1e9
        self._received = np.array([0, up_gbps, 0, down_gbps]) * 1e9

    def leaving(self, rows: Rows, ticks: int) -> Floats:
        return np.repeat(self._sent[rows, None], ticks, axis=1).astype(np.float32)

    def entering(self, rows: Rows, ticks: int) -> Floats:
        return np.repeat(self._received[rows, None], ticks, axis=1).astype(np.float32)

    def left_of(self, *rows: int, full_ticks: int = 5, are_inferred: bool = False) -> list[int]:
        """The rows that are left of full links."""
        links = [_full(row, full_ticks, are_inferred) for row in rows]
        return [each.row for each in without_downstream(cast("DetectorInput", self), links)]


def _full(row: int, full_ticks: int, is_inferred: bool = False) -> FullLink:
    none: Rows = np.empty(0, np.intp)
    hosts = np.array([9]) if row == UP else none
    group = LinkGroup("leaf2", row == DOWN, np.array([row]), none, hosts)
    return FullLink(
        row=row,
        group=group,
        level=np.ones(1, np.float32),
        full_ticks=full_ticks,
        feeders=none,
        named=none,
        lost=0.5,
        slowed_by="",
        active=0,
        is_inferred=is_inferred,
    )


def test_a_link_that_carries_what_another_one_lets_through_has_no_queue() -> None:
    assert Row(388, 388).left_of(UP, DOWN) == [UP]


def test_the_one_that_carries_more_has_other_traffic_too() -> None:
    assert Row(380, 390).left_of(UP, DOWN) == [DOWN]


def test_links_of_different_load_carry_different_flows() -> None:
    assert Row(300, 390).left_of(UP, DOWN) == [UP, DOWN]


@pytest.mark.parametrize(("full_ticks", "left"), [(5, []), (10, [DOWN])])
def test_one_that_may_carry_what_an_unjudged_link_brings_must_be_full_for_longer(
    full_ticks: int, left: list[int]
) -> None:
    assert Row(388, 388).left_of(DOWN, full_ticks=full_ticks) == left


def test_one_that_no_link_brings_as_much_to_is_judged_at_once() -> None:
    assert Row(200, 388).left_of(DOWN) == [DOWN]


@pytest.mark.parametrize(("up_gbps", "left"), [(300, []), (250, []), (150, [DOWN])])
def test_one_that_is_inferred_from_its_receivers_carries_more_than_any_link_before_it(
    up_gbps: float, left: list[int]
) -> None:
    """Bursts fill it to half; a link that carries as much, or more, may have their queue."""
    assert Row(up_gbps, 200).left_of(DOWN, full_ticks=10, are_inferred=True) == left
