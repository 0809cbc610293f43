"""What an agent remembers of its probe, and what a newcomer hears."""

from __future__ import annotations

import pytest

from collectors import wire
from fabmon.agent.streams import ProbeState
from fabmon.fabric.wire.messages import Frame, Hello, Notice, WireError
from tests.unit.agent.probe_lines import NOW_NS, frame_line, hello_line, layout, state_after

FAST = layout("netdev", "netdev_up")
SLOW = layout("ib_errors", "ib_phys_state", every=10)


def greeted(state: ProbeState) -> list[Hello | Frame | Notice]:
    return [line.message for line in state.greeting()]


def test_before_the_probe_has_spoken_there_is_nothing_to_say() -> None:
    assert ProbeState().greeting() == []


def test_a_newcomer_hears_a_hello_then_what_is_wrong_then_the_last_of_every_source() -> None:
    state = state_after(
        [
            hello_line(FAST, SLOW),
            wire.notice("lost", "routes", "cannot", reason="failed"),
            wire.notice("absent", "netdev", "", "eth0", "netdev_up", "unsupported"),
            frame_line(0, [1, 1], [1, 5]),
            frame_line(1, [2, 0], None),
        ]
    )
    hello, lost, absent, frame = greeted(state)
    assert isinstance(hello, Hello)
    assert isinstance(lost, Notice)
    assert isinstance(absent, Notice)
    assert isinstance(frame, Frame)
    assert (lost.source, absent.metric) == ("routes", "netdev_up")
    assert (frame.seq, frame.blocks) == (1, [[2, 0], [1, 5]])


def test_a_recovered_problem_is_not_in_the_greeting() -> None:
    state = state_after(
        [
            hello_line(FAST),
            wire.notice("lost", "netdev", "hangs", reason="late"),
            wire.notice("recovered", "netdev", "reads again"),
            frame_line(0, [1, 1]),
        ]
    )
    assert [type(each) for each in greeted(state)] == [Hello, Frame]
    assert state.lost == {}


def test_what_was_logged_is_passed_on_once_and_greets_nobody() -> None:
    line = wire.notice(wire.LOGGED, "kernel_log", "fell off", "0000:5f:00.0", "xid_79")
    state = state_after([hello_line(FAST), line, frame_line(0, [1, 1])])
    assert [type(each) for each in greeted(state)] == [Hello, Frame]
    assert state.take(line, NOW_NS).raw == line


def test_what_a_lost_source_read_is_not_kept() -> None:
    state = state_after([hello_line(FAST, SLOW), frame_line(0, [1, 1], [1, 5])])
    state.take(wire.notice("lost", "ib_errors", "hangs", reason="late"), NOW_NS)
    assert state.blocks == [[1, 1], None]
    assert state.read_at_ns == {"netdev": 1, "ib_errors": 1}


def test_a_new_hello_keeps_what_it_does_not_change() -> None:
    state = state_after([hello_line(FAST, SLOW), frame_line(0, [1, 1], [1, 5])])
    state.take(hello_line(layout("netdev", "netdev_up", "netdev_mtu"), SLOW), NOW_NS)
    assert state.blocks == [None, [1, 5]]
    assert [type(each) for each in greeted(state)] == [Hello]


def test_a_probe_that_is_gone_leaves_its_hello_only() -> None:
    state = state_after([hello_line(FAST), frame_line(0, [1, 1])])
    state.forget()
    assert [type(each) for each in greeted(state)] == [Hello]
    assert state.blocks == [None]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"Segmentation fault\n", "not a wire message"),
        (frame_line(0, [1, 1], [2, 2]), "2 blocks, announced 1"),
        (b'["packed",""]\n', "packed"),
    ],
)
def test_what_is_not_the_wire_is_refused(line: bytes, complaint: str) -> None:
    state = state_after([hello_line(FAST)])
    with pytest.raises(WireError, match=complaint):
        state.take(line, NOW_NS)


def test_a_frame_comes_after_a_hello() -> None:
    with pytest.raises(WireError, match="before any hello"):
        ProbeState().take(frame_line(0), NOW_NS)
