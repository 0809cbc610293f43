"""Who may be on a link: by queue pairs where they are known, by correlation where they are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fabmon.analysis.evidence.flows_on_link import (
    FlowsOnLink,
    correlations,
    flows_on_link,
)
from fabmon.fabric.flows.possible_ends import queue_pairs_on_link
from fabmon.fabric.snapshot import Snapshot
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import FabricShape, Fault, Job, Scenario
from fabmon.history.history import History
from tests.connections import reported_pairs, ring
from tests.tui.fabrics import fabric
from tests.tui.scenes import World

HOSTS = tuple(f"gpu{n:03d}" for n in range(1, 9))
"""Four below each of two leaves."""
QUIET = World(fabric(gpus=1))
TALKING = replace(QUIET, queue_pairs=reported_pairs(ring(HOSTS), HOSTS))
MOMENT = TALKING.scene(70).snapshot


def row(port: str) -> int:
    """Of `leaf1/up5`, by the port's label."""
    node, _, label = port.partition("/")
    return next(p.row for p in QUIET.fabric.node(node).ports if p.label == label)


def found(port: str, way: str = "tx", snapshot: Snapshot = MOMENT) -> FlowsOnLink:
    on_link = flows_on_link(snapshot, [row(port)], way)
    assert on_link is not None
    return on_link


def ends(on_link: FlowsOnLink, snapshot: Snapshot = MOMENT) -> set[tuple[str, str]]:
    table, ports = snapshot.connections.flows, snapshot.fabric.ports
    return {
        (ports[table.src[flow]].node, ports[table.dst[flow]].node)
        for flow in on_link.flows.tolist()
    }


OUT_OF_LEAF1 = {("gpu001", "gpu008"), ("gpu004", "gpu005")}
INTO_LEAF1 = {(dst, src) for src, dst in OUT_OF_LEAF1}


def test_an_uplink_may_carry_what_leaves_its_leaf() -> None:
    on_link = found("leaf1/up5")
    assert ends(on_link) == OUT_OF_LEAF1
    assert not on_link.is_exact
    assert len(on_link.flows) == 2 * 8 * 2
    assert on_link.sports == len(set(MOMENT.connections.flows.sport[on_link.flows].tolist()))
    assert on_link.senders == {"gpu001", "gpu002", "gpu003", "gpu004"}
    assert not on_link.silent


def test_what_comes_down_is_meant_for_the_leaf_and_the_same_from_both_ends() -> None:
    up5 = QUIET.fabric.ports[row("leaf1/up5")]
    assert up5.peer is not None
    assert ends(found("leaf1/up5", "rx")) == INTO_LEAF1
    from_spine = flows_on_link(MOMENT, [up5.peer], "tx")
    assert from_spine is not None
    assert ends(from_spine) == INTO_LEAF1
    to_spine = flows_on_link(MOMENT, [up5.peer], "rx")
    assert to_spine is not None
    assert to_spine.flows.tolist() == found("leaf1/up5").flows.tolist()


def test_a_hosts_link_carries_its_flows_surely_and_no_others() -> None:
    nic = QUIET.fabric.ports[row("gpu004/r3")]
    assert nic.peer is not None
    sends = found("gpu004/r3")
    assert sends.is_exact
    assert ends(sends) == {("gpu004", "gpu003"), ("gpu004", "gpu005")}
    gets = flows_on_link(MOMENT, [nic.peer], "tx")
    assert gets is not None
    assert gets.is_exact
    assert ends(gets) == {("gpu003", "gpu004"), ("gpu005", "gpu004")}
    assert gets.flows.tolist() == found("gpu004/r3", "rx").flows.tolist()


def test_several_senders_are_all_of_their_flows() -> None:
    both = flows_on_link(MOMENT, [row("gpu004/r3"), row("gpu007/r0")])
    assert both is not None
    assert both.is_exact
    assert {src for src, _ in ends(both)} == {"gpu004", "gpu007"}


def test_those_who_send_most_come_first() -> None:
    sent = MOMENT.column("tx_bps")[MOMENT.connections.flows.src[found("leaf1/up5").flows]]
    assert sent.tolist() == sorted(sent.tolist(), reverse=True)


def test_what_no_traffic_between_nodes_crosses_has_nobody() -> None:
    gpu = next(p.row for p in QUIET.fabric.ports if p.role == "gpu")
    assert flows_on_link(MOMENT, [gpu]) is None
    assert flows_on_link(MOMENT, [10_000]) is None


def test_hosts_that_do_not_tell_are_not_hosts_without_flows() -> None:
    some = (
        replace(QUIET, queue_pairs=reported_pairs(ring(HOSTS), HOSTS, "gpu001", "gpu005"))
        .scene(70)
        .snapshot
    )
    on_link = found("leaf1/up5", snapshot=some)
    assert on_link.silent == {"gpu001"}
    assert on_link.has_queue_pairs
    assert on_link.unsure == 2 * 8 * 2, "gpu002 to gpu001, and gpu004 to gpu005"
    none = found("leaf1/up5", snapshot=QUIET.scene(70).snapshot)
    assert not none.has_queue_pairs
    assert not len(none.flows)


def test_queue_pairs_on_a_link_and_their_source_ports_are_counted_where_they_are_known() -> None:
    ports = found("leaf1/up5").sports
    assert queue_pairs_on_link(MOMENT.connections, row("leaf1/up5")) == (32, ports)
    assert queue_pairs_on_link(QUIET.scene(70).snapshot.connections, row("leaf1/up5")) == (0, 0)


def test_correlation_is_pearsons_and_steady_curves_have_none() -> None:
    lots = np.random.default_rng(3)
    curve = lots.random(50).astype(np.float32)
    others = np.stack([3 * curve + 7, -curve, lots.random(50), np.full(50, 4.0)])
    r = correlations(curve, others.astype(np.float32))
    assert r[:2] == pytest.approx([1.0, -1.0], abs=1e-5)
    assert r[2] == pytest.approx(float(np.corrcoef(curve, others[2])[0, 1]), abs=1e-5)
    assert np.isnan(r[3])
    assert np.isnan(correlations(np.full(50, 2.0, np.float32), others.astype(np.float32))).all()


def test_the_simulated_senders_of_a_collision_are_among_those_who_may_be_on_the_link() -> None:
    scenario = Scenario(
        topology=FabricShape(kind="leaf-spine", hosts=16, rails=4),
        job=(Job(qps=2),),
        fault=(Fault(kind="ecmp_collision", at=0),),
    )
    feed = DemoFeed(scenario)
    history = History(feed.hosts)
    for _ in range(3):
        snapshot = history.accept(feed.step())
    ((nics, uplink),) = feed.world.conditions.rules.pins
    hardware = feed.world.hardware
    rows = {port.id: port.row for port in snapshot.fabric.ports}
    on_link = flows_on_link(snapshot, [rows[hardware.port_id(uplink)]])
    assert on_link is not None
    senders = {snapshot.fabric.ports[r].id for r in snapshot.connections.flows.src[on_link.flows]}
    assert {hardware.port_id(int(nic)) for nic in nics} <= senders
    table, flows = snapshot.connections.flows, feed.world.flows
    assert len(table) == 2 * len(flows)
    assert set(table.sport.tolist()) == set(flows.sport.tolist()), "what the switches hash"
