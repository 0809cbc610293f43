"""Which conditions become findings, when, and when they end. Texts are goldens."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.wire import Object
from fabmon.analysis.causes import brief_loss, loss_and_confidence, sentence
from fabmon.analysis.finding import (
    Change,
    Condition,
    Evidence,
    Finding,
    badness,
    from_stored,
    list_order,
    to_stored,
)
from fabmon.analysis.tracker import FindingThresholds, FindingTracker
from fabmon.fabric.model import SWITCH, Host
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.report.json_records import finding_record
from fabmon.report.scene_report import finding_lines, table
from tests.builders import (
    SECOND_NS,
    START_NS,
    LeafSpine,
    Watched,
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


class WatchedLeaf(Watched):
    """A leaf with four uplinks, and hosts as fast as these, watched second by second."""

    def __init__(self, uplinks: int = 4, hosts: int = 10, management: int = 0) -> None:
        super().__init__(LeafSpine(uplinks, hosts, RATE, management))

    def uplinks(self, *flows: float | tuple[float, ...]) -> None:
        """What goes over each uplink, as a share of its line rate: one flow or several, each from
        another host."""
        self.fabric.silence()
        hosts = iter(range(1, 100))
        for number, each in enumerate(flows, start=1):
            for util in each if isinstance(each, tuple) else (each,):
                if util:
                    name = f"gpu{next(hosts):03}/eth0"
                    self.fabric.send(util * RATE, name, f"leaf1/up{number}")


def as_json(finding: Finding) -> str:
    """A finding as recordings hold it, as text."""
    fields = to_stored(finding)
    return msgspec.json.format(msgspec.json.encode(fields), indent=2).decode() + "\n"


def test_a_collision_is_reported_within_five_seconds_of_its_start_with_its_link() -> None:
    leaf = WatchedLeaf()
    leaf.seconds(10)
    leaf.uplinks((0.49, 0.49), 0.05, 0.0, 0.30)
    leaf.seconds(5)
    ((seq, _, finding),) = leaf.changes
    assert finding.subject == "leaf1/up1"
    assert seq <= 10 + 5
    # Of the 98 % that the link carries each of the two gets half.
    assert finding.lost == pytest.approx(0.50, abs=0.01)
    check_golden(GOLDENS / "finding_ecmp_collision.json", as_json(finding))


def test_two_collisions_in_one_group_are_two_findings() -> None:
    leaf = WatchedLeaf(uplinks=8)
    leaf.seconds(2)
    leaf.uplinks((0.48, 0.49), 0.1, 0.1, (0.48, 0.49), 0.1, 0.0, 0.1, 0.1)
    leaf.seconds(6)
    assert leaf.opened() == ["ecmp_collision leaf1/up1", "ecmp_collision leaf1/up4"]


def test_even_load_is_silent_however_high() -> None:
    leaf = WatchedLeaf()
    leaf.uplinks(0.5, 0.5, 0.5, 0.5)
    leaf.seconds(30)
    leaf.uplinks(0.97, 0.95, 0.96, 0.97)
    leaf.seconds(30)
    assert leaf.changes == []


def test_uplinks_as_fast_as_the_hosts_below_are_not_oversubscribed_by_a_management_port() -> None:
    leaf = WatchedLeaf(hosts=4, management=1)
    leaf.uplinks(0.97, 0.96, 0.96, 0.97)
    leaf.seconds(30)
    assert leaf.changes == []


def test_a_link_that_is_busy_and_not_full_is_silent_where_no_queue_can_be_seen() -> None:
    leaf = WatchedLeaf()
    leaf.uplinks((0.43, 0.43), 0.1, 0.1, 0.1)
    leaf.seconds(30)
    assert leaf.changes == []


def test_a_full_group_is_not_a_collision() -> None:
    leaf = WatchedLeaf()
    leaf.uplinks((0.49, 0.5), (0.42, 0.42), (0.42, 0.41), (0.42, 0.43))
    leaf.seconds(30)
    assert leaf.changes == []


def test_two_full_seconds_are_not_enough() -> None:
    leaf = WatchedLeaf()

    def burst(second: int) -> None:
        is_full = second in (20, 21)
        leaf.uplinks((0.49, 0.5) if is_full else 0.1, 0.1, 0.1, 0.1)

    leaf.seconds(60, burst)
    assert leaf.changes == []


def leaf_of(
    *objects: Object,
    seconds: int,
    busy_from: int = 3,
    silent_from: int | None = None,
    utils: tuple[float, ...] = (0.97, 0.05, 0.0),
) -> list[str]:
    """What is reported of three uplinks with these utilisations from second `busy_from` on.

    Two hosts that are not watched send half of each. With `silent_from`, up2 cannot be read from
    that second on.
    """
    ports = [port(f"up{i}") for i in range(3)]
    below = [port(f"down{i}") for i in range(2)]
    text = hello(*ports, *below, *objects)
    pipeline = new_pipeline([Host(name="leaf", role=SWITCH, speeds=(("*", RATE),))])
    sent, texts = [0.0] * 3, []
    for second in range(seconds):
        values: list[int | None] = []
        for i, util in enumerate(utils if second >= busy_from else (0.0, 0.0, 0.0)):
            sent[i] += util * RATE / 8
            is_silent = i == 2 and silent_from is not None and second >= silent_from
            values += [1, None if is_silent else int(sent[i]), 0, 0]
        values += [1, 0, int(sum(sent) / 2), 0] * 2
        heard = tick(
            second,
            {"leaf": frame(second, *values)},
            {"leaf": text} if second == 0 else {},
            up("leaf"),
        )
        scene = pipeline.accept(heard)
        texts += [f"{change} {finding.text}" for change, finding in scene.changes]
    return texts


def test_a_link_of_two_groups_is_one_finding_about_the_one_that_loses_most() -> None:
    smaller = Object("ecmp/2", "ecmp", None, {"members": [{"dev": "up0"}, {"dev": "up1"}]}, ())
    texts = leaf_of(ecmp("up0", "up1", "up2"), smaller, seconds=40)
    assert [each.partition(" ")[0] for each in texts] == ["open", "update"]
    assert all("while the 3 links of its group average 34 %" in each for each in texts)
    assert ["over 4 s" in texts[0], "over 5 s" in texts[1]] == [True, True], "as far as it is full"


def test_a_link_that_cannot_be_read_is_not_an_idle_one() -> None:
    group = ecmp("up0", "up1", "up2")
    (text,) = leaf_of(group, seconds=20, busy_from=14, silent_from=3)
    assert "while the 2 links of its group average" in text
    assert "idle" not in text
    (text,) = leaf_of(group, seconds=20, busy_from=14)
    assert "idle: up3" in text


def test_a_finding_opens_once_and_closes_once_through_the_jobs_pauses() -> None:
    leaf = WatchedLeaf()

    def iterations(second: int) -> None:
        communicates = second % 6 < 4 and second < 60
        leaf.uplinks(*(((0.49, 0.49), 0.1, 0.2, 0.1) if communicates else ()))

    leaf.seconds(110, iterations)
    kinds = [change for _, change, _ in leaf.changes]
    assert kinds.count(Change.OPEN) == 1
    assert kinds.count(Change.CLOSE) == 1
    closed = leaf.changes[-1][2]
    assert closed.until_ns is not None
    assert closed.until_ns > closed.since_ns


def test_a_condition_that_does_not_hold_any_more_is_shown_with_its_age() -> None:
    leaf = WatchedLeaf()
    leaf.uplinks((0.49, 0.49), 0.05, 0.0, 0.30)
    scene = leaf.seconds(10)
    (finding,) = scene.findings
    assert finding.seen_ns == scene.snapshot.time_ns
    assert sentence(finding, scene.snapshot) == finding.text
    leaf.uplinks(0.4, 0.4, 0.4, 0.4)
    held = 0
    while (scene := leaf.seconds(1)).findings:
        (finding,) = scene.findings
        assert finding.seen_ns is not None
        passed_s = (scene.snapshot.time_ns - finding.seen_ns) // SECOND_NS
        text = sentence(finding, scene.snapshot)
        assert (f"last seen {passed_s} s ago" in text) == (passed_s >= 3)
        assert f"! ECMP collision: {text}" in table(scene)
        held += passed_s >= 3
    assert held > 5
    _, change, closed = leaf.changes[-1]
    assert change is Change.CLOSE
    assert closed.seen_ns == closed.until_ns


def test_a_line_rate_that_is_wrong_is_reported_with_the_finding() -> None:
    texts = leaf_of(ecmp("up0", "up1", "up2"), seconds=12, utils=(0.98, 3.0, 0.0))
    assert texts
    assert all("its line rate is wrong" in each for each in texts)


def test_a_dead_member_is_not_an_idle_one() -> None:
    leaf = WatchedLeaf(uplinks=2)
    leaf.seconds(3)
    leaf.fabric.down.add("leaf1/up2")
    leaf.uplinks((0.49, 0.49), 0.0)
    leaf.seconds(8)
    assert leaf.opened() == ["link_down leaf1/up2"]


def test_a_cable_whose_ends_are_read_one_after_the_other_is_one_finding() -> None:
    """The spine is read first once the cable is gone, then the leaf as well."""
    leaf = Watched(LeafSpine())
    leaf.seconds(5)
    leaf.fabric.down.add("spine2/swp1")
    leaf.seconds(1)
    leaf.fabric.down.add("leaf1/up2")
    leaf.seconds(20)
    assert leaf.opened() == ["link_down leaf1/up2"]


def test_a_cable_whose_two_ends_are_watched_is_reported_once() -> None:
    leaf = WatchedLeaf()
    leaf.seconds(3)
    leaf.fabric.down |= {"leaf1/up2", "spine2/swp1"}
    scene = leaf.seconds(2)
    (finding,) = scene.findings
    assert finding.cause == "link_down"
    check_golden(GOLDENS / "finding_link_down.json", as_json(finding))


def test_a_port_that_was_never_up_is_no_finding() -> None:
    leaf = WatchedLeaf()
    leaf.fabric.down.add("leaf1/down3")
    leaf.seconds(10)
    assert leaf.changes == []


def test_a_link_that_comes_back_closes_its_finding() -> None:
    leaf = WatchedLeaf()
    leaf.seconds(3)
    leaf.fabric.down.add("leaf1/up2")
    leaf.seconds(3)
    leaf.fabric.down.clear()
    scene = leaf.seconds(20)
    assert scene.findings == ()
    assert [change for _, change, _ in leaf.changes] == [Change.OPEN, Change.CLOSE]


def test_a_lost_node_is_reported_with_the_reason_and_closed_when_it_is_back() -> None:
    leaf = WatchedLeaf()
    leaf.seconds(3)
    lost = NodeStatus("gpu001", NodeState.LOST, START_NS, "connection reset", "ended")
    scene = leaf.pipeline.accept(tick(3, statuses=[lost]))
    (finding,) = scene.findings
    check_golden(GOLDENS / "finding_node_lost.json", as_json(finding))
    assert [event.text for event in scene.events][-2:] == [
        "gpu001 lost",
        "open node_lost gpu001",
    ]
    back = NodeStatus("gpu001", NodeState.UP, START_NS)
    for seq in range(4, 25):
        scene = leaf.pipeline.accept(tick(seq, statuses=[back] if seq == 4 else []))
    assert scene.findings == ()


def test_the_costliest_finding_comes_first() -> None:
    leaf = WatchedLeaf(uplinks=8)
    leaf.seconds(3)
    leaf.uplinks((0.48, 0.49), 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1)
    leaf.seconds(5)
    leaf.fabric.down.add("leaf1/down1")
    scene = leaf.seconds(2)
    assert [finding.cause for finding in scene.findings] == ["link_down", "ecmp_collision"]


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_a_clock_that_is_set_neither_closes_a_finding_nor_keeps_it(step_s: int) -> None:
    leaf = WatchedLeaf()
    leaf.uplinks((0.49, 0.49), 0.1, 0.2, 0.1)
    leaf.seconds(8)
    leaf.uplinks(0.1, 0.1, 0.1, 0.1)
    leaf.seconds(10)
    leaf.fabric.clock_off_ns = step_s * SECOND_NS
    scene = leaf.seconds(1)
    assert [finding.subject for finding in scene.findings] == ["leaf1/up1"]
    leaf.seconds(20)
    assert [change for _, change, _ in leaf.changes] == [Change.OPEN, Change.CLOSE]


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_an_open_finding_is_as_old_as_it_is_after_the_clock_was_set(step_s: int) -> None:
    leaf = WatchedLeaf()
    leaf.uplinks((0.49, 0.49), 0.1, 0.2, 0.1)
    (before,) = leaf.seconds(10).findings
    leaf.fabric.clock_off_ns = step_s * SECOND_NS
    scene = leaf.seconds(1)
    (after,) = scene.findings
    assert after.since_ns - before.since_ns == step_s * SECOND_NS
    leaf.uplinks(0.1, 0.1, 0.1, 0.1)
    leaf.seconds(20)
    closed = leaf.changes[-1][2]
    assert closed.until_ns is not None
    assert 10 <= (closed.until_ns - closed.since_ns) / SECOND_NS <= 20


def condition(lost: float, names: str, **fields: Any) -> Condition:
    """A full link that so much is lost on, shared by the ports of these `names`."""
    who = f" ({names})" if names else ""
    usual = Condition(
        cause="ecmp_collision",
        severity="warning",
        subject="leaf1/up1",
        rows=(0,),
        text=f"leaf1 up1 is full: ports share it{who} and lose {lost:.0%}",
        evidence=(Evidence("lost bandwidth", lost * 100, "%"),),
        advice="",
        confidence=0.9,
        lost=lost,
        victims=tuple(names.split()),
    )
    return msgspec.structs.replace(usual, **fields)


def life_of(*conditions: Condition) -> list[tuple[Change, Finding]]:
    """What changes at each tick, until the finding has closed."""
    tracker = FindingTracker(FindingThresholds(5.0, 300.0, 20.0, 1.0))
    ticks = [[each] for each in conditions] + [[]] * 6
    return [
        change
        for second, holding in enumerate(ticks)
        for change in tracker.accept(holding, START_NS + second * SECOND_NS, 1.0)
    ]


def test_a_finding_that_fades_says_its_worst_moment_and_what_it_loses_now() -> None:
    named, vague = "gpu001 gpu002", ""
    life = life_of(
        *[condition(0.5, named)] * 2,
        condition(0.9, named),  # One tick, which may be noise.
        condition(0.65, named),
        condition(0.64, named),
        condition(0.66, vague),  # It is not known any more who shares the link.
        condition(0.15, vague),
    )
    texts = [
        sentence(finding).removeprefix("leaf1 up1 is full: ports share it") for _, finding in life
    ]
    worst = "at 04:40:03Z: leaf1 up1 is full: ports share it (gpu001 gpu002) and lose 65%"
    assert texts == [
        " (gpu001 gpu002) and lose 50%",
        " (gpu001 gpu002) and lose 90%",
        " (gpu001 gpu002) and lose 65%",
        " (gpu001 gpu002) and lose 64%",
        worst,  # 66 % of nobody is no more than 65 % of somebody, and not said beside it.
        f"{worst}; 15 % lost at 04:40:06Z",
        f"11-21 04:40:00Z to 04:40:06Z, {worst}; 15 % lost at its end",
    ]
    snapshot = replace(WatchedLeaf().seconds(1).snapshot, time_ns=START_NS + 6 * SECOND_NS)
    assert sentence(life[-2][1], snapshot).endswith("lose 65%; now 15 % lost")
    closed = life[-1][1]
    assert (closed.lost, closed.until_ns) == (0.15, START_NS + 6 * SECOND_NS)
    assert from_stored(to_stored(closed)) == closed
    record = finding_record(Change.CLOSE, closed, [], START_NS)
    assert record.text == texts[-1]
    assert (record.lost, record.last and record.last.lost) == (0.65, 0.15)


def test_what_is_said_of_a_finding_that_faded_is_of_its_worst_moment_in_every_output() -> None:
    """At its end nobody is named, and what is lost is only bounded: no number of that moment stands
    beside one of the other."""
    job = "job 8801 train (anna)"
    worst = condition(0.65, "gpu001", severity="critical", unseen="drops", jobs=(job,))
    end = condition(0.7, "", confidence=0.5, lost_is_upper_bound=True, unseen="who shares it")
    life = life_of(*[worst] * 3, end)
    faded, closed = life[-2][1], life[-1][1]
    for finding in (faded, closed):
        record = finding_record(Change.UPDATE, finding, [], START_NS)
        assert (record.severity, record.lost, record.lost_is_upper_bound) == (
            "critical",
            0.65,
            False,
        )
        assert (record.confidence, record.unseen) == (0.9, "drops")
        assert (record.victims, record.jobs) == (["gpu001"], [job])
        assert record.evidence == list(worst.evidence)
        assert record.last is not None
        assert (record.last.severity, record.last.lost) == ("warning", 0.7)
        assert (record.last.confidence, record.last.unseen) == (0.5, "who shares it")
        assert brief_loss(finding) == "65 % lost"
        said = "at its worst 65 % of the bandwidth lost, confidence 90 %"
        assert loss_and_confidence(finding) == said
        assert list_order(finding)[:2] == (0, -0.65)
        scene = replace(WatchedLeaf().seconds(1), changes=((Change.UPDATE, finding),))
        (line,) = finding_lines(scene)
        assert " critical " in line
        assert line.endswith(f"[{job}]\n")


@given(
    losses=st.lists(
        st.tuples(st.sampled_from([0.1, 0.4, 0.5, 0.52, 0.9]), st.booleans(), st.booleans()),
        min_size=1,
        max_size=12,
    )
)
def test_what_is_said_to_be_the_worst_is_never_better_than_what_is_said_of_now(
    losses: list[tuple[float, bool, bool]],
) -> None:
    ticks = [
        condition(lost, "gpu001" * is_named, lost_is_upper_bound=is_bound)
        for lost, is_named, is_bound in losses
    ]
    for change, finding in life_of(*ticks):
        record = finding_record(change, finding, [], START_NS)
        if finding.worst is None:
            assert record.last is None
            continue
        assert badness(finding.worst) > badness(finding)
        said = [int(each) for each in re.findall(r"(\d+) ?%", sentence(finding))]
        assert max(said) == said[0], "of the moment that is shown, then of now"
        if not finding.lost_is_upper_bound and finding.victims:
            assert finding.worst.lost > finding.lost
        assert finding.seen_ns is not None
        assert (finding.worst.seen_ns or 0) < finding.seen_ns


def test_a_loss_that_is_as_high_at_the_end_is_said_once() -> None:
    life = life_of(*[condition(0.65, "gpu001")] * 3, *[condition(0.65, "")] * 2)
    faded, closed = life[-2][1], life[-1][1]
    worst = "at 04:40:02Z: leaf1 up1 is full: ports share it (gpu001) and lose 65%"
    assert sentence(faded) == worst
    assert sentence(closed) == f"11-21 04:40:00Z to 04:40:04Z, {worst}"
    snapshot = replace(WatchedLeaf().seconds(1).snapshot, time_ns=START_NS + 9 * SECOND_NS)
    assert sentence(faded, snapshot) == f"{worst}; last seen 6 s ago"
    bound = condition(0.7, "gpu001", lost_is_upper_bound=True)
    closed = life_of(*[condition(0.65, "gpu001")] * 3, bound)[-1][1]
    assert sentence(closed) == f"11-21 04:40:00Z to 04:40:03Z, {worst}"


def test_a_fact_has_its_newest_text_until_its_end() -> None:
    facts = [msgspec.structs.replace(condition(0, ""), text=f"{n} errors") for n in (9, 3)]
    assert [sentence(each) for _, each in life_of(*facts)] == [
        "9 errors",
        "3 errors",
        "11-21 04:40:00Z to 04:40:01Z: 3 errors",
    ]
    assert sentence(life_of(facts[0])[-1][1]) == "11-21 04:40:00Z, one sample: 9 errors"


def test_a_recorded_worst_moment_is_kept_where_only_the_minutes_after_it_are_analysed() -> None:
    recorded = [each for _, each in life_of(*[condition(0.65, "gpu001")] * 3)][-2]
    tracker = FindingTracker(
        FindingThresholds(5.0, 300.0, 20.0, 1.0),
        begins=lambda _: {recorded.key: to_stored(recorded)},
    )
    for second in range(10, 16):
        tracker.accept([condition(0.15, "")], START_NS + second * SECOND_NS, 1.0)
        (shown,) = tracker.open()
        assert "and lose 65%; 15 % lost at 04:40:1" in sentence(shown)
        assert (shown.lost, shown.since_ns) == (0.15, recorded.since_ns)


def test_a_worst_moment_is_kept_by_who_takes_the_finding_up() -> None:
    """A watch that was started again: two ticks later it was forgotten."""
    kept = [each for _, each in life_of(*[condition(0.65, "gpu001")] * 3, condition(0.2, ""))][-2]
    tracker = FindingTracker(FindingThresholds(5.0, 300.0, 20.0, 1.0))
    tracker.take_up([kept])
    for second in range(10, 16):
        tracker.accept([condition(0.15, "")], START_NS + second * SECOND_NS, 1.0)
        (shown,) = tracker.open()
        assert shown.worst is not None
        assert shown.worst.lost == 0.65


def test_a_number_that_is_none_is_no_evidence_and_loses_no_finding() -> None:
    nan = float("nan")
    evidence = (Evidence("mean of", nan, "s"), Evidence("ratio", -float("inf")))
    known = (Evidence("before", 1.0, "bps"), Evidence("state", "down"))
    found = msgspec.structs.replace(
        condition(nan, "up1"), evidence=(*evidence, *known), confidence=nan
    )
    ((_, finding),) = life_of(found)[:1]
    assert (finding.evidence, finding.lost, finding.confidence) == (known, 0.0, 0.0)
    assert msgspec.json.decode(as_json(finding), type=Finding) == finding
