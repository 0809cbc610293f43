"""Which conditions become findings, when, and when they end. Texts are goldens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from collectors.wire import Object
from fabmon.analysis.finding import Change, Finding, sentence
from fabmon.analysis.scene import Scene
from fabmon.fabric.model import SWITCH, Host
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.report.scene_report import table
from tests.builders import (
    SECOND_NS,
    START_NS,
    LeafSpine,
    ecmp,
    frame,
    hello,
    new_pipeline,
    port,
    tick,
    up,
)
from tests.goldens import check_golden

GOLDENS = Path(__file__).parent / "goldens"
RATE = 100e6


class House:
    """A leaf with four uplinks, watched second by second."""

    def __init__(self, **shape: int) -> None:
        self.fabric = LeafSpine(**{"uplinks": 4, "hosts": 4, **shape}, rate_bps=RATE)
        self.pipeline = new_pipeline(self.fabric.hosts)
        self.changes: list[tuple[int, Change, Finding]] = []

    def uplinks(self, *utils: float) -> None:
        for number, util in enumerate(utils, start=1):
            self.fabric.sent[f"leaf1/up{number}"] = util * RATE

    def seconds(self, count: int, traffic: Callable[[int], None] | None = None) -> Scene:
        for second in range(count):
            if traffic is not None:
                traffic(second)
            scene = self.pipeline.accept(self.fabric.step())
            for change, finding in scene.changes:
                self.changes.append((scene.snapshot.seq, change, finding))
        return scene

    def opened(self) -> list[str]:
        return [f"{each.cause} {each.subject}" for _, c, each in self.changes if c is Change.OPEN]


def test_a_collision_is_told_within_four_seconds_of_its_start_with_its_link() -> None:
    house = House()
    house.seconds(10)
    house.uplinks(0.98, 0.05, 0.0, 0.30)
    house.seconds(5)
    ((seq, _, finding),) = house.changes
    assert finding.subject == "leaf1/up1"
    assert seq <= 10 + 4
    assert 0.6 < finding.lost < 0.7
    text = msgspec.json.format(msgspec.json.encode(finding), indent=2).decode() + "\n"
    check_golden(GOLDENS / "finding_ecmp_collision.json", text)


def test_two_collisions_in_one_group_are_two_findings() -> None:
    house = House(uplinks=8)
    house.seconds(2)
    house.uplinks(0.97, 0.1, 0.1, 0.97, 0.1, 0.0, 0.1, 0.1)
    house.seconds(6)
    assert house.opened() == ["ecmp_collision leaf1/up1", "ecmp_collision leaf1/up4"]


def test_even_load_is_silent_however_high() -> None:
    house = House()
    house.uplinks(0.5, 0.5, 0.5, 0.5)
    house.seconds(30)
    house.uplinks(0.97, 0.95, 0.96, 0.97)
    house.seconds(30)
    assert house.changes == []


def test_uplinks_as_fast_as_the_hosts_below_are_not_oversubscribed_by_a_management_port() -> None:
    house = House(management=1)
    house.uplinks(0.97, 0.96, 0.96, 0.97)
    house.seconds(30)
    assert house.changes == []


def test_a_link_that_is_busy_and_not_full_is_silent_where_no_queue_can_be_seen() -> None:
    house = House()
    house.uplinks(0.86, 0.1, 0.1, 0.1)
    house.seconds(30)
    assert house.changes == []


def test_a_full_group_is_not_a_collision() -> None:
    house = House()
    house.uplinks(0.99, 0.75, 0.80, 0.85)
    house.seconds(30)
    assert house.changes == []


def test_two_hot_ticks_are_not_enough() -> None:
    house = House()

    def burst(second: int) -> None:
        hot = second % 10 < 2
        house.uplinks(0.99 if hot else 0.1, 0.1, 0.1, 0.1)

    house.seconds(60, burst)
    assert house.changes == []


def leaf_of(*objects: Object, seconds: int, silent_from: int | None = None) -> list[str]:
    """What is told of a leaf whose up0 is hot from the third second on, and up2 is idle.

    With `silent_from`, up2 cannot be read from that second on.
    """
    ports = [port(f"up{i}") for i in range(3)]
    said = hello(*ports, *objects)
    pipeline = new_pipeline([Host(name="leaf", role=SWITCH, speeds=(("*", RATE),))])
    sent, told = [0.0] * 3, []
    for second in range(seconds):
        values: list[int | None] = []
        for i, util in enumerate((0.97, 0.05, 0.0) if second >= 3 else (0.0, 0.0, 0.0)):
            sent[i] += util * RATE / 8
            is_silent = i == 2 and silent_from is not None and second >= silent_from
            values += [1, None if is_silent else int(sent[i]), 0, 0]
        heard = tick(
            second,
            {"leaf": frame(second, *values)},
            {"leaf": said} if second == 0 else {},
            up("leaf"),
        )
        scene = pipeline.accept(heard)
        told += [f"{change} {finding.text}" for change, finding in scene.changes]
    return told


def test_a_link_of_two_groups_is_one_finding_about_the_one_that_loses_most() -> None:
    smaller = Object("ecmp/2", "ecmp", None, {"members": [{"dev": "up0"}, {"dev": "up1"}]}, ())
    told = leaf_of(ecmp("up0", "up1", "up2"), smaller, seconds=40)
    assert len(told) == 1
    assert "while the 3 links of its group average 34 %" in told[0]


def test_a_link_that_falls_silent_while_another_is_hot_is_no_warning() -> None:
    (told,) = leaf_of(ecmp("up0", "up1", "up2"), seconds=12, silent_from=3)
    assert "idle" not in told


def test_a_finding_opens_once_and_closes_once_through_the_jobs_pauses() -> None:
    house = House()

    def iterations(second: int) -> None:
        communicates = second % 6 < 4 and second < 60
        house.uplinks(*((0.98, 0.1, 0.2, 0.1) if communicates else (0, 0, 0, 0)))

    house.seconds(100, iterations)
    kinds = [change for _, change, _ in house.changes]
    assert kinds.count(Change.OPEN) == 1
    assert kinds.count(Change.CLOSE) == 1
    closed = house.changes[-1][2]
    assert closed.until_ns is not None
    assert closed.until_ns > closed.since_ns


def test_what_does_not_hold_any_more_is_not_told_as_if_it_did() -> None:
    house = House()
    house.uplinks(0.98, 0.05, 0.0, 0.30)
    scene = house.seconds(10)
    (finding,) = scene.findings
    assert finding.seen_ns == scene.snapshot.time_ns
    assert sentence(finding, scene.snapshot) == finding.text
    house.uplinks(0.4, 0.4, 0.4, 0.4)
    held = 0
    while (scene := house.seconds(1)).findings:
        (finding,) = scene.findings
        assert finding.seen_ns is not None
        passed_s = (scene.snapshot.time_ns - finding.seen_ns) // SECOND_NS
        said = f"last seen {passed_s} s ago: {finding.text}"
        assert sentence(finding, scene.snapshot) == (said if passed_s >= 3 else finding.text)
        assert (f"! ECMP collision: {said}" in table(scene)) == (passed_s >= 3)
        held += passed_s >= 3
    assert held > 5
    _, change, closed = house.changes[-1]
    assert change is Change.CLOSE
    assert closed.seen_ns == closed.until_ns


def test_a_line_rate_that_is_wrong_makes_no_negative_loss_and_is_told() -> None:
    house = House()
    house.seconds(4)
    house.uplinks(0.98, 3.0, 3.0, 0.0)
    house.seconds(8)
    told = [each for _, _, each in house.changes if each.cause == "ecmp_collision"]
    assert told
    assert all(0 <= each.lost <= 1 for each in told)
    assert all("its line rate is wrong" in each.text for each in told)


def test_a_dead_member_is_not_an_idle_one() -> None:
    house = House(uplinks=2)
    house.seconds(3)
    house.fabric.down.add("leaf1/up2")
    house.uplinks(0.98, 0.0)
    house.seconds(8)
    assert house.opened() == ["link_down leaf1/up2"]


def test_a_cable_whose_two_ends_are_watched_is_told_once() -> None:
    house = House()
    house.seconds(3)
    house.fabric.down |= {"leaf1/up2", "spine2/swp1"}
    scene = house.seconds(2)
    (finding,) = scene.findings
    assert finding.cause == "link_down"
    text = msgspec.json.format(msgspec.json.encode(finding), indent=2).decode() + "\n"
    check_golden(GOLDENS / "finding_link_down.json", text)


def test_a_port_that_was_never_up_is_no_finding() -> None:
    house = House()
    house.fabric.down.add("leaf1/down3")
    house.seconds(10)
    assert house.changes == []


def test_a_link_that_comes_back_closes_its_finding() -> None:
    house = House()
    house.seconds(3)
    house.fabric.down.add("leaf1/up2")
    house.seconds(3)
    house.fabric.down.clear()
    scene = house.seconds(20)
    assert scene.findings == ()
    assert [change for _, change, _ in house.changes] == [Change.OPEN, Change.CLOSE]


def test_a_lost_node_is_told_with_the_reason_and_closed_when_it_is_back() -> None:
    house = House()
    house.seconds(3)
    lost = NodeStatus("gpu001", NodeState.LOST, START_NS, "connection reset", "ended")
    scene = house.pipeline.accept(tick(3, statuses=[lost]))
    (finding,) = scene.findings
    text = msgspec.json.format(msgspec.json.encode(finding), indent=2).decode() + "\n"
    check_golden(GOLDENS / "finding_node_lost.json", text)
    assert [event.text for event in scene.events][-2:] == [
        "gpu001 lost",
        "open node_lost gpu001",
    ]
    back = NodeStatus("gpu001", NodeState.UP, START_NS)
    for seq in range(4, 25):
        scene = house.pipeline.accept(tick(seq, statuses=[back] if seq == 4 else []))
    assert scene.findings == ()


def test_the_costliest_finding_comes_first() -> None:
    house = House(uplinks=8)
    house.seconds(3)
    house.uplinks(0.97, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)
    house.seconds(5)
    house.fabric.down.add("leaf1/down1")
    scene = house.seconds(2)
    assert [finding.cause for finding in scene.findings] == ["link_down", "ecmp_collision"]


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_a_clock_that_is_set_neither_closes_a_finding_nor_keeps_it(step_s: int) -> None:
    house = House()
    house.uplinks(0.98, 0.1, 0.2, 0.1)
    house.seconds(8)
    house.uplinks(0.1, 0.1, 0.1, 0.1)
    house.seconds(10)
    house.fabric.clock_off_ns = step_s * SECOND_NS
    scene = house.seconds(1)
    assert [finding.subject for finding in scene.findings] == ["leaf1/up1"]
    house.seconds(20)
    assert [change for _, change, _ in house.changes] == [Change.OPEN, Change.CLOSE]
