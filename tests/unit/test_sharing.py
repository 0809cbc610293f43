"""Who shares a full link: rates of senders against the load of the link."""

from __future__ import annotations

import numpy as np
import pytest

from fabmon.analysis.evidence.sharing import last_ticks, only_sender, sharing
from fabmon.fabric.snapshot import Floats

TICKS = 6


def steady(*gbps: float) -> Floats:
    """[senders, TICKS] in Gb/s."""
    return np.repeat(np.array([gbps], np.float32).T, TICKS, axis=1)


def load(gbps: float) -> Floats:
    return np.full(TICKS, gbps, np.float32)


@pytest.mark.parametrize(
    ("sent", "of", "found"),
    [
        ((195, 200, 20), 395, [0, 1]),
        ((130, 133, 131, 390), 392, [0, 1, 2]),
        ((300, 90, 5), 395, [0, 1, 2]),
    ],
    ids=["two halves", "three thirds", "no equal parts: all"],
)
def test_those_with_equal_parts_share_a_link(
    sent: tuple[float, ...], of: float, found: list[int]
) -> None:
    slowed = np.array(sent) < 360
    found_by_rate = sharing(steady(*sent), slowed, load(of), np.zeros(len(sent), np.bool_))
    assert np.flatnonzero(found_by_rate).tolist() == found


def test_senders_that_take_turns_share_nothing() -> None:
    turns = np.zeros((2, TICKS), np.float32)
    turns[0, ::2] = turns[1, 1::2] = 390
    both = np.array([True, True])
    assert not sharing(turns, both, load(390), both).any()


def test_the_port_with_the_rate_of_a_link_has_it_alone() -> None:
    sent, may = steady(100, 385, 388), np.array([True, True, False])
    full = np.array([False, True, True, False, True, False])
    assert only_sender(sent, load(390), full, may) == 1
    assert only_sender(sent, load(200), full, may) is None
    assert only_sender(sent, load(390), full, np.zeros(3, np.bool_)) is None


def test_a_port_that_is_sampled_half_a_tick_later_has_its_link_alone() -> None:
    """Bursts of a tick and a half: half of one falls into the tick beside it."""
    link = np.array([0, 390, 195, 0, 0, 390, 195, 0], np.float32)
    port = np.array([[0, 195, 390, 0, 0, 195, 390, 0]], np.float32)
    assert only_sender(port, link, link > 380, np.ones(1, np.bool_)) is None
    later = np.array([[0, 290, 295, 0, 0, 290, 295, 0]], np.float32)
    assert only_sender(later, link, link > 380, np.ones(1, np.bool_)) == 0


def test_where_parts_are_unequal_those_that_show_a_queue_share_a_link() -> None:
    sent = steady(300, 90, 350, 330)
    slowed, queued = np.ones(4, np.bool_), np.array([True, True, False, False])
    assert np.flatnonzero(sharing(sent, slowed, load(390), queued)).tolist() == [0, 1]
    nobody = np.zeros(4, np.bool_)
    assert not sharing(sent, slowed, load(390), nobody).any()


def test_the_last_ticks_that_count() -> None:
    counts = np.array([True, False, True, True, False, True])
    assert np.flatnonzero(last_ticks(counts, 2)).tolist() == [3, 5]
