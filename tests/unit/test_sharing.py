"""Who shares a full link: rates of senders against the load of the link."""

from __future__ import annotations

import numpy as np
import pytest

from fabmon.analysis.evidence.sharing import Sharers, are_enough, last_ticks, only_sender, sharing
from fabmon.fabric.snapshot import Floats

TICKS = 6


def steady(*gbps: float) -> Floats:
    """[senders, TICKS] in Gb/s."""
    return np.repeat(np.array([gbps], np.float32).T, TICKS, axis=1)


def load(gbps: float) -> Floats:
    return np.full(TICKS, gbps, np.float32)


def shared(
    sent: Floats, of: float, *signs: tuple[float, ...], full_links: int = 1
) -> tuple[list[int], list[int]]:
    """The slowed senders of a link and those that are named, with the CNPs and the waiting of each;
    senders are of 400 Gb/s."""
    slowed = sent.mean(axis=1) < 360
    arrays = [np.array(each, np.float32) for each in signs]
    found = sharing(sent, slowed, load(of), arrays, full_links)
    return np.flatnonzero(found.slowed).tolist(), np.flatnonzero(found.named).tolist()


@pytest.mark.parametrize(
    ("sent", "of", "found"),
    [
        ((195, 200, 60, 70), 395, [0, 1]),
        ((130, 133, 131, 390, 200), 392, [0, 1, 2]),
        ((300, 90, 5), 395, [0, 1, 2]),
    ],
    ids=["two halves", "three thirds", "what all send"],
)
def test_those_with_equal_parts_share_a_link(
    sent: tuple[float, ...], of: float, found: list[int]
) -> None:
    assert shared(steady(*sent), of) == (found, found)


def test_of_senders_in_step_nobody_is_named_where_none_shows_a_queue() -> None:
    """Two of four share the link; the other two send as fast as these, over other links."""
    slowed, named = shared(steady(195, 195, 195, 195), 390)
    assert (slowed, named) == ([0, 1, 2, 3], [])


def test_of_senders_in_step_those_with_the_most_cnps_are_named() -> None:
    cnps = (190.0, 28.0, 210.0, 25.0, 0.0)
    assert shared(steady(195, 195, 195, 195, 195), 390, cnps) == ([0, 2], [0, 2])


def test_a_sender_with_many_cnps_that_cannot_fill_the_link_is_not_alone_on_it() -> None:
    """The first has another queue as well; the next two share the link, with fewer CNPs."""
    cnps = (700.0, 200.0, 190.0, 25.0)
    assert shared(steady(20, 185, 185, 185), 390, cnps) == ([0, 1, 2], [0, 1, 2])


def test_those_that_wait_for_credits_are_named_where_nothing_is_marked() -> None:
    waits = (0.05, 0.5, 0.45, 0.04)
    assert shared(steady(195, 195, 195, 195), 390, (0.0,) * 4, waits) == ([1, 2], [1, 2])


def test_nobody_is_named_where_senders_of_two_full_links_show_the_same_queue() -> None:
    cnps = (200.0,) * 4
    slowed, named = shared(steady(195, 195, 195, 195), 390, cnps, full_links=2)
    assert (slowed, named) == ([0, 1, 2, 3], [])


def test_ports_that_may_be_on_several_links_are_two_for_each() -> None:
    first, last = np.array([1, 1, 0, 0], np.bool_), np.array([0, 0, 1, 1], np.bool_)
    on_first, on_last, on_any = (Sharers(each, each) for each in (first, last, first | last))
    assert are_enough(first, [on_first, on_last])
    assert not are_enough(first, [on_first, on_first])
    assert are_enough(first | last, [on_any, on_any])
    assert not are_enough(first | last, [on_any, on_any, on_any])


def test_senders_with_connections_over_a_link_share_it_though_they_send_elsewhere_as_well() -> None:
    sent, slowed = steady(330, 300, 250), np.ones(3, np.bool_)
    assert not sharing(sent, slowed, load(390), []).named.any()
    assert sharing(sent, slowed, load(390), [], are_on_it=True).named.all()


def test_senders_that_take_turns_share_nothing() -> None:
    turns = np.zeros((2, TICKS), np.float32)
    turns[0, ::2] = turns[1, 1::2] = 390
    assert shared(turns, 390, (200.0, 200.0)) == ([], [])


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
    assert shared(sent, 390, (90.0, 80.0, 0.0, 0.0)) == ([0, 1], [0, 1])
    assert shared(sent, 390, (0.0,) * 4) == ([], [])


def test_the_last_ticks_that_count() -> None:
    counts = np.array([True, False, True, True, False, True])
    assert np.flatnonzero(last_ticks(counts, 2)).tolist() == [3, 5]
