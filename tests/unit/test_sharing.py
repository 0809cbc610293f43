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
    assert np.flatnonzero(sharing(steady(*sent), slowed, load(of))).tolist() == found


def test_senders_that_take_turns_share_nothing() -> None:
    turns = np.zeros((2, TICKS), np.float32)
    turns[0, ::2] = turns[1, 1::2] = 390
    assert not sharing(turns, np.array([True, True]), load(390)).any()


def test_the_port_with_the_rate_of_a_link_has_it_alone() -> None:
    sent, may = steady(100, 385, 388), np.array([True, True, False])
    assert only_sender(sent, load(390), may) == 1
    assert only_sender(sent, load(200), may) is None
    assert only_sender(sent, load(390), np.zeros(3, np.bool_)) is None


def test_the_last_ticks_that_count() -> None:
    counts = np.array([True, False, True, True, False, True])
    assert np.flatnonzero(last_ticks(counts, 2)).tolist() == [3, 5]
