"""The simulated fabric: nothing is lost or made, nothing exceeds its line, all is repeatable."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from fabmon.fabric.model import SWITCH
from fabmon.fabric.tick import NodeState
from fabmon.feeds.demo.faults import KINDS as FAULT_KINDS
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import (
    KINDS,
    FabricShape,
    Fault,
    Job,
    Scenario,
    ScenarioError,
    parse,
)
from fabmon.history.history import History
from tests.unit.demo.worlds import Reader, planned_cables, scenario

MIXED = (
    Fault(kind="ecmp_collision", at=3, duration=6),
    Fault(kind="slow_receiver", at=5, duration=6),
    Fault(kind="flapping_link", at=9, duration=6),
    Fault(kind="incast", at=12, duration=4),
)
ROUTINGS = ("hash", "spray", "static")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("routing", ROUTINGS)
def test_what_one_end_sends_the_other_receives(kind: str, routing: str) -> None:
    feed = DemoFeed(scenario(*MIXED, kind=kind, routing=routing, hosts=8))
    stem = "ib" if kind == "fat-tree" else "phy"
    reader = Reader(feed).step()
    for _ in range(16):
        reader.step()
        for one, other in planned_cables(feed):
            for tx, rx in ((one, other), (other, one)):
                sent = reader.delta(tx, f"{stem}_tx_bytes")
                assert sent == reader.delta(rx, f"{stem}_rx_bytes") >= 0


@pytest.mark.parametrize("collective", ["ring", "tree", "all-to-all"])
@pytest.mark.parametrize("routing", ROUTINGS)
def test_no_link_carries_more_than_its_line_rate(collective: str, routing: str) -> None:
    job = Job(collective=collective, qps=2, demand=1.0)  # type: ignore[arg-type]
    world = DemoFeed(scenario(*MIXED, job=job, routing=routing, kind="leaf-spine")).world
    for _ in range(20):
        moved = world.advance(1.0)
        assert (moved.sent <= world.hardware.speed * (1 + 1e-6)).all()
        assert (moved.paused_s <= 1 + 1e-9).all()


def test_an_all_reduce_moves_what_it_must() -> None:
    job = Job(collective="ring", payload_gb=8, compute_s=1.0, jitter=0.0, stop=1.9, hosts=4)
    world = DemoFeed(scenario(job=job)).world
    sent = world.advance(3.0).sent
    nics = world.hardware.rails * np.array(world.hosts_of[0])
    assert sent[nics] == pytest.approx(2 * 3 / 4 * 8e9, rel=1e-3)


def test_cnps_that_are_sent_are_handled() -> None:
    world = DemoFeed(scenario(Fault(kind="ecmp_collision"))).world
    moved = world.advance(10.0)
    assert moved.cnp_sent.sum() == pytest.approx(moved.cnp_handled.sum())
    assert moved.cnp_sent.sum() > 1000


def test_equal_seeds_give_equal_ticks_and_others_give_others() -> None:
    def ticks(seed: int) -> list[object]:
        feed = DemoFeed(scenario(*MIXED, seed=seed, routing="hash"))
        return [feed.step() for _ in range(15)]

    assert ticks(3) == ticks(3)
    assert ticks(3) != ticks(4)


async def test_as_fast_as_possible_it_does_not_sleep() -> None:
    async with DemoFeed(scenario()) as feed:
        ticks = []
        async for tick in feed:
            ticks.append(tick)
            if len(ticks) == 30:
                break
    assert [tick.seq for tick in ticks] == list(range(30))
    assert ticks[-1].time_ns - ticks[0].time_ns == 29_000_000_000


async def test_closing_ends_the_ticks_also_of_who_waits() -> None:
    feed = DemoFeed(scenario(), speed=0.001)
    await anext(feed)
    waiting = asyncio.ensure_future(anext(feed, None))
    await asyncio.sleep(0)
    await feed.aclose()
    assert await waiting is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_console_finds_every_cable_and_every_group(kind: str) -> None:
    feed = DemoFeed(scenario(kind=kind))
    fabric = History(feed.hosts).accept(feed.step()).fabric
    found = {
        frozenset((port.id, fabric.ports[port.peer].id))
        for port in fabric.ports
        if port.peer is not None
    }
    assert found == {frozenset(cable) for cable in planned_cables(feed)}
    hardware = feed.world.hardware
    uplinks = [group for group in fabric.groups if group.node.startswith("leaf")]
    assert [len(group.rows) for group in uplinks] == [hardware.up] * hardware.leaves


def test_with_hosts_alone_there_is_no_switch() -> None:
    feed = DemoFeed(scenario(visible="hosts"))
    assert not [host for host in feed.hosts if host.role == SWITCH]
    assert len(feed.step().frames) == 16


def test_a_lost_node_is_silent_then_lost_then_back_with_new_counters() -> None:
    fault = Fault(kind="node_lost", where="gpu003", at=2, duration=6, crash=True)
    reader = Reader(DemoFeed(scenario(fault))).step(12)
    states = [s.state for tick in reader.ticks[1:] for s in tick.statuses if s.node == "gpu003"]
    assert states == [NodeState.LOST, NodeState.UP]
    frames = [len([1 for name, _ in tick.frames if name == "gpu003"]) for tick in reader.ticks]
    assert frames == [1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1]
    boots = {
        hello.boot_id for tick in reader.ticks for name, hello in tick.hellos if name[-1] == "3"
    }
    assert {"gpu003-0", "gpu003-1"} <= boots


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[topology]\nhost = 4", r"unknown field `host`.*did you mean `hosts`"),
        ("[topology]\nfor = 4", r"unknown field `for` - at `\$.topology`$"),
        ("[[fault]]\nkind = 'incast'\nform = 4", r"unknown field `form`.*did you mean `for`"),
        ("[topolgy]\nhosts = 4", r"unknown field `topolgy`.*did you mean `topology`"),
        ("[topology", "scenario: "),
        (r'title = "\u001b]0;x\u0007"', "scenario: control character U\\+001B in a text"),
        ("a = " + "[" * 5000, "scenario: brackets are nested too deep"),
        ("a = " + "9" * 5000, "scenario: a number is too long"),
    ],
)
def test_a_mistake_in_a_scenario_is_named(text: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        parse(text)


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        (Fault(kind="ecmp_collision", where="leaf9"), "no node 'leaf9'"),
        (Fault(kind="incast", where="leaf1/dn1"), "leaf1/dn1 is no host"),
        (Fault(kind="degraded_link", where="leaf1/up99"), "leaf1 has no port 'up99'"),
        (Fault(kind="oversubscription"), "set topology.oversubscription"),
        (Fault(kind="straggler", job="x", where="gpu002"), None),
    ],
)
def test_a_fault_that_cannot_be_is_refused(fault: Fault, complaint: str | None) -> None:
    made = scenario(fault, kind="leaf-spine", hosts=8)
    if complaint is None:
        DemoFeed(made)
        return
    with pytest.raises(ScenarioError, match=complaint):
        DemoFeed(made)


def test_leaves_must_be_full() -> None:
    topology = FabricShape(hosts=10, hosts_per_leaf=4)
    with pytest.raises(ScenarioError, match="10 hosts do not fill leaves of 4"):
        DemoFeed(Scenario(topology=topology))


def test_the_example_of_the_docs_plays_and_its_table_has_every_fault() -> None:
    page = (Path(__file__).parents[3] / "docs" / "scenarios.md").read_text()
    example = page.partition("```toml\n")[2].partition("```")[0]
    DemoFeed(parse(example)).step()
    assert [kind for kind in FAULT_KINDS if f"\n| `{kind}` |" not in page] == []


def test_old_names_of_faults_are_read() -> None:
    old = parse('[[fault]]\nkind = "collision"\n[[fault]]\nkind = "flap"\n')
    assert [fault.kind for fault in old.fault] == ["ecmp_collision", "flapping_link"]
    assert Fault(kind="pcie_limit").kind == "host_pcie_limit"


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("slow_reciever", "fault `slow_reciever`: unknown kind; did you mean `slow_receiver`"),
        ("rain", "fault `rain`: unknown kind; one of ecmp_collision, "),
    ],
)
def test_an_unknown_fault_is_refused_with_the_nearest_name(kind: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        DemoFeed(parse(f'[[fault]]\nkind = "{kind}"\n'))


@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_fabric_marks_nothing_and_pauses_nobody(kind: str) -> None:
    world = DemoFeed(scenario(kind=kind)).world
    moved = world.advance(120.0)
    assert moved.paused_s.sum() == moved.marked.sum() == 0
    assert world.trainings[0].iterations > 30
