"""Of full links in a row, the queue is before the first one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.downstream_links import without_downstream
from fabmon.analysis.evidence.full_link import FullLink
from fabmon.analysis.fabric_structure import NONE, LinkGroup, PortSets, Rows
from fabmon.fabric.snapshot import Floats

NO_ROWS: Rows = np.empty(0, np.intp)

UP, SPINE_IN, DOWN, LEAF_IN, OTHER_UP, OTHER_SPINE_IN = range(6)
"""leaf1's uplink, its other end at the spine, the spine's link into leaf2, its other end, and the
uplink of another leaf to that spine."""

IDLE_UP = 6
"""Another uplink of leaf1, to a spine that is not watched."""


class Row:
    """Two full links after each other: leaf1 to a spine, and that spine to leaf2."""

    structure = SimpleNamespace(
        peer=np.array([SPINE_IN, UP, LEAF_IN, DOWN, OTHER_SPINE_IN, OTHER_UP, NONE]),
        node=np.array([0, 1, 1, 2, 3, 1, 0]),
        is_switch=np.ones(7, np.bool_),
        groups=[LinkGroup("leaf1", False, np.array([UP, IDLE_UP]), NO_ROWS, NO_ROWS)],
        group_links=PortSets(np.array([UP, IDLE_UP]), np.array([0, 0]), 1),
    )

    def __init__(
        self,
        up_gbps: float,
        down_gbps: float,
        other_up_gbps: float = 0.0,
        idle_up_gbps: float = 388.0,
        down_line_gbps: float = 400.0,
    ) -> None:
        sent_gbps = [up_gbps, 0, down_gbps, 0, other_up_gbps, 0, idle_up_gbps]
        self._sent = np.array(sent_gbps) * 1e9
        received_gbps = [0, up_gbps, 0, down_gbps, 0, other_up_gbps, 0]
        self._received = np.array(received_gbps) * 1e9
        lines = np.full(7, 400e9, np.float32)
        lines[DOWN] = down_line_gbps * 1e9
        self.snapshot = SimpleNamespace(line_rate_bps=lines, up=np.ones(7, np.float32))

    def leaving(self, rows: Rows, ticks: int) -> Floats:
        return np.repeat(self._sent[rows, None], ticks, axis=1).astype(np.float32)

    def entering(self, rows: Rows, ticks: int) -> Floats:
        return np.repeat(self._received[rows, None], ticks, axis=1).astype(np.float32)

    def left_of(self, *rows: int, full_ticks: int = 5, are_inferred: bool = False) -> list[int]:
        """The rows that are left of full links."""
        links = [_full(row, full_ticks, are_inferred) for row in rows]
        left = without_downstream(cast("DetectorInput", self), links, room_util=0.8)
        return [each.row for each in left]


def _full(row: int, full_ticks: int, is_inferred: bool = False) -> FullLink:
    hosts = np.array([9]) if row == UP else NO_ROWS
    group = LinkGroup("leaf2", row == DOWN, np.array([row]), NO_ROWS, hosts)
    return FullLink(
        row=row,
        group=group,
        level=np.ones(1, np.float32),
        full_ticks=full_ticks,
        feeders=NO_ROWS,
        named=NO_ROWS,
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


@pytest.mark.parametrize(
    ("row", "left"),
    [
        (Row(388, 388, idle_up_gbps=0.0), [UP]),
        (Row(388, 388, idle_up_gbps=0.0, other_up_gbps=20.0), [UP]),
        (Row(388, 388, idle_up_gbps=0.0, other_up_gbps=380.0), [DOWN]),
        (Row(388, 388, idle_up_gbps=0.0, other_up_gbps=200.0), [DOWN]),
        (Row(200, 200, idle_up_gbps=0.0, down_line_gbps=200.0), [DOWN]),
        (Row(375, 390, idle_up_gbps=0.0, other_up_gbps=15.0), [DOWN]),
    ],
)
def test_what_one_link_alone_brings_over_a_link_as_fast_queues_before_that_one(
    row: Row, left: list[int]
) -> None:
    """As that of senders that do not slow down: the switch before it does not show what they lose.
    Not where other links may bring a part of it, or where the second link is the slower one."""
    assert row.left_of(DOWN, full_ticks=10) == left


def test_one_that_no_link_brings_as_much_to_is_judged_at_once() -> None:
    assert Row(200, 388).left_of(DOWN) == [DOWN]


@pytest.mark.parametrize(("up_gbps", "left"), [(300, []), (250, []), (150, [DOWN])])
def test_one_that_is_inferred_from_its_receivers_carries_more_than_any_link_before_it(
    up_gbps: float, left: list[int]
) -> None:
    """Bursts fill it to half; a link that carries as much, or more, may have their queue."""
    assert Row(up_gbps, 200).left_of(DOWN, full_ticks=10, are_inferred=True) == left
