"""Unhealthy links, found by their counters of errors and carrier changes."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from collectors import wire
from fabmon.analysis.finding import Change, Finding
from fabmon.fabric.model import Host
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Frame, Hello, MetricInfo, decode
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import FabricShape, Fault, Scenario
from tests.builders import (
    METRICS,
    SECOND_NS,
    START_NS,
    LeafSpine,
    Watched,
    block,
    frame,
    hello,
    new_pipeline,
    port,
    tick,
    up,
)

FULL = 0xFFFF


def opened(ticks: list[Tick], interval_s: float = 1.0) -> list[Finding]:
    """Every finding that opens on the nodes a and b."""
    pipeline = new_pipeline([Host(name="a"), Host(name="b")], interval_s)
    changes = [pipeline.accept(each).changes for each in ticks]
    return [finding for each in changes for change, finding in each if change == "open"]


def with_a_new_metric() -> Hello:
    """What a node says that is newer than this console: a metric which nobody else has."""
    said = hello(port("eth0", metrics=("netdev_up",)))
    (block,) = said.blocks
    (item,) = block.objects
    item = msgspec.structs.replace(item, metrics=("netdev_up", "made_up_yesterday"))
    metrics = {**said.metrics, "made_up_yesterday": MetricInfo("", "wrap64")}
    block = msgspec.structs.replace(block, objects=(item,))
    return msgspec.structs.replace(said, blocks=(block,), metrics=metrics)


def symbol_errors(*counts: int) -> list[Tick]:
    """Second by second what a port of node a has counted; b, which is newer, comes last."""
    metrics = ("ib_symbol_errors", "netdev_rx_errors")
    said = hello(*(port(name, metrics=metrics) for name in ("i0", "i1")))
    ticks = [
        tick(
            seq,
            {"a": frame(seq, 0, 0, count, 0)},
            {} if seq else {"a": said},
            () if seq else up("a"),
        )
        for seq, count in enumerate(counts)
    ]
    seq = len(counts)
    found = {"a": frame(seq, 0, 0, counts[-1], 0), "b": frame(seq, 1, 7)}
    return [*ticks, tick(seq, found, {"b": with_a_new_metric()}, up("b"))]


def test_a_counter_that_runs_into_its_maximum_is_a_burst() -> None:
    found = opened(symbol_errors(*[60] * 20, FULL, FULL))
    assert {each.cause for each in found} == {"error_burst"}


def test_a_node_that_brings_an_unknown_metric_makes_no_burst_of_counters_long_full() -> None:
    found = opened(symbol_errors(*[FULL] * 30))
    assert [each.cause for each in found] == ["saturated_counter"]


def carrier_changes(*counts: int, interval_s: float, every: int = 1) -> list[Tick]:
    """Tick by tick what a port has counted; it is up whenever somebody looks, and its counters are
    read once in `every` ticks."""
    nic = port("eth0", metrics=(*METRICS, "netdev_carrier_changes"))
    layout = [wire.BlockLayout("netdev", every, (nic,))]
    said = decode(wire.hello(layout, {"interval_s": interval_s}))
    assert isinstance(said, Hello)
    ticks = []
    for seq, count in enumerate(counts):
        clock = round((seq + 1) * interval_s * SECOND_NS)
        read = None if seq % every else block(clock, 1, 0, 0, 0, count)
        heard = {"a": Frame(seq, START_NS + clock, clock, [read])}
        each = tick(seq, heard, {} if seq else {"a": said}, () if seq else up("a"))
        ticks.append(msgspec.structs.replace(each, time_ns=START_NS + clock))
    return ticks


@pytest.mark.parametrize("interval_s", [0.1, 1.0, 4.0])
def test_changes_of_carrier_are_counted_over_two_minutes_whatever_the_interval(
    interval_s: float,
) -> None:
    seconds = (10, 60, 100)
    times = [round(second / interval_s) for second in seconds]
    counts = [sum(seq >= each for each in times) for seq in range(round(112 / interval_s))]
    (finding,) = opened(carrier_changes(*counts, interval_s=interval_s), interval_s)
    assert finding.text == "a r0 changed carrier 3 times in the last 2 min"


@pytest.mark.parametrize("interval_s", [0.5, 1.0, 4.0])
def test_changes_of_carrier_more_than_two_minutes_apart_are_no_flapping(interval_s: float) -> None:
    times = [round(second / interval_s) for second in (10, 60, 140)]
    counts = [sum(seq >= each for each in times) for seq in range(round(152 / interval_s))]
    assert opened(carrier_changes(*counts, interval_s=interval_s), interval_s) == []


@pytest.mark.parametrize("every", [5, 15, 30])
def test_changes_of_carrier_are_counted_however_rarely_the_port_is_read(every: int) -> None:
    """gNMI may report counters every 30 s."""
    counts = [0] * 70 + [2] * 30 + [4] * 60
    (finding,) = opened(carrier_changes(*counts, interval_s=1.0, every=every))
    assert finding.text == "a r0 changed carrier 4 times in the last 2 min"
    once = [0] * 70 + [2] * 90
    assert opened(carrier_changes(*once, interval_s=1.0, every=every)) == []


def test_a_link_that_goes_down_once_is_not_flapping_though_a_frame_is_late() -> None:
    """The rate that shows a change stands for another second: it is no second change."""
    counts = [*[0] * 20, *[1] * 20, *[2] * 20]
    ticks = carrier_changes(*counts, interval_s=1.0)
    ticks[41] = msgspec.structs.replace(ticks[41], frames=())
    assert opened(ticks, 1.0) == []


def test_changes_of_carrier_while_frames_are_late_are_counted() -> None:
    counts = [*[0] * 20, *[1] * 20, *[3] * 20]
    ticks = carrier_changes(*counts, interval_s=1.0)
    ticks[40] = msgspec.structs.replace(ticks[40], frames=())
    (finding,) = opened(ticks, 1.0)
    assert finding.text == "a r0 changed carrier 3 times in the last 2 min"


RATE = 400e9


def test_errors_that_become_damage_are_one_finding_whose_cause_changes() -> None:
    """First two errors a second, then so many that 1 % of the line rate is lost."""
    watched = Watched(LeafSpine(uplinks=2, hosts=4, rate_bps=RATE, metrics=("phy_rx_crc_errors",)))
    damaged = "gpu002/eth0", "phy_rx_crc_errors"
    watched.seconds(3)
    watched.fabric.counted[damaged] = 2
    scene = watched.seconds(12)
    (before,) = scene.findings
    assert (before.cause, before.opened_as) == ("error_burst", "")
    watched.fabric.counted[damaged] = 0.02 * RATE / (4096 * 8)
    scene = watched.seconds(12)
    (now,) = scene.findings
    assert (now.cause, now.opened_as) == ("degraded_link", "error_burst")
    assert now.key == before.key == "error_burst:gpu002/eth0"
    assert now.since_ns == before.since_ns
    kinds = [(change, each.cause) for _, change, each in watched.changes]
    assert kinds == [(Change.OPEN, "error_burst"), (Change.UPDATE, "degraded_link")]
    watched.fabric.counted[damaged] = 0
    watched.seconds(45)
    closed = [each for _, change, each in watched.changes if change is Change.CLOSE]
    assert [each.key for each in closed] == [before.key]


def test_hosts_of_an_older_generation_are_not_degraded() -> None:
    """Eight hosts of 200G beside eight of 400G."""
    slow = {
        port: 200e9
        for number in range(1, 9)
        for port in (f"gpu{number:03}/eth0", f"leaf1/down{number}")
    }
    watched = Watched(LeafSpine(uplinks=4, hosts=16, rate_bps=RATE, speeds=slow))
    watched.seconds(15)
    assert watched.changes == []


def test_an_uplink_that_is_slower_than_its_group_is_degraded() -> None:
    watched = Watched(LeafSpine(uplinks=4, hosts=4, rate_bps=RATE, speeds={"leaf1/up2": 100e9}))
    (finding,) = watched.seconds(5).findings
    assert (finding.cause, finding.subject) == ("degraded_link", "leaf1/up2")
    assert finding.lost == pytest.approx(0.75)


def test_damage_at_many_ports_at_once_is_one_finding() -> None:
    """Forty cables do not fail together."""
    fabric = LeafSpine(uplinks=2, hosts=40, rate_bps=RATE, metrics=("phy_rx_crc_errors",))
    watched = Watched(fabric)
    watched.seconds(3)
    for name in fabric.servers:
        fabric.counted[f"{name}/eth0", "phy_rx_crc_errors"] = 1000
    watched.seconds(5)
    assert watched.opened() == ["error_burst many links"]


@pytest.mark.parametrize(
    ("kind", "where", "command"),
    [
        ("leaf-spine", "gpu005/r1", "ethtool -m"),
        ("fat-tree", "gpu005/r1", "mlxlink -d mlx5_1 -m"),
        ("fat-tree", "leaf1/up3", "ibdiagnet --get_cable_info"),
    ],
)
@pytest.mark.parametrize("cause", ["degraded_link", "error_burst", "flapping_link"])
def test_the_advice_names_what_reads_the_module_of_such_a_port(
    kind: Literal["leaf-spine", "fat-tree"], where: str, command: str, cause: str
) -> None:
    """InfiniBand ports have no ethtool, and no auto-negotiation as Ethernet has."""
    shape = FabricShape(kind=kind, hosts=8, hosts_per_leaf=8, rails=2)
    fault = Fault(kind=cause, at=3, where=where)
    feed = DemoFeed(Scenario(topology=shape, fault=(fault,)))
    pipeline = new_pipeline(feed.hosts)
    found: dict[str, Finding] = {}
    for _ in range(25):
        for finding in pipeline.accept(feed.step()).findings:
            found[finding.cause] = finding
        if cause in found:
            break
    advice = found[cause].advice
    assert f"({command})" in advice
    assert ("ethtool" in advice or "auto-negotiation" in advice) == (kind == "leaf-spine")
    assert ("Take the port down" in advice) == (cause == "flapping_link")
