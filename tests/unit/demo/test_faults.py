"""Each fault shows in the counters that would show it, while it lasts, and the truth says so."""

from __future__ import annotations

from typing import Any

import pytest

from fabmon.feeds.demo.fault_planner import Truth
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import Fault, Job, ScenarioError
from tests.unit.demo.worlds import Reader, planned_cables, scenario

HELD, HOLDS = "pfc_rx_pause_us_prio3", "pfc_tx_pause_us_prio3"
LINE = 50e9
"""Bytes/s of 400 Gb/s."""


def played(fault: Fault, job: Job | None = None, ticks: int = 6, **topology: Any) -> Reader:
    """So many ticks of a job that never computes, with a fault from the start."""
    always = job or Job(compute_s=0.0, payload_gb=1000)
    return Reader(DemoFeed(scenario(fault, job=always, **topology))).step(ticks)


def truth(reader: Reader) -> Truth:
    (only,) = reader.feed.world.truth
    assert only.seen_s == 0
    return only


def test_collision_fills_one_uplink_and_marks() -> None:
    reader = played(Fault(kind="ecmp_collision", where="leaf2/up2"))
    said = truth(reader)
    assert said.cause == "ecmp_collision"
    group = [port for port, _ in planned_cables(reader.feed) if port.startswith("leaf2/")]
    sent = {port: reader.delta(port, "phy_tx_bytes") / LINE for port in group}
    assert max(sent, key=sent.__getitem__) == said.subject
    assert sent.pop(said.subject) == pytest.approx(1, abs=0.02)
    assert max(sent.values()) < 0.6
    assert sum(reader.moved("rdma_ecn_marked", 1).values()) > 1000


def test_polarization_uses_few_uplinks() -> None:
    reader = played(Fault(kind="polarization", where="leaf1"), kind="leaf-spine")
    said = truth(reader)
    used = {
        port
        for port, _ in planned_cables(reader.feed)
        if port.startswith("leaf1/") and reader.delta(port, "phy_tx_bytes") > 0.05 * LINE
    }
    assert used <= set(said.links)
    assert len(said.links) < 8


def test_what_does_not_hash_cannot_be_polarized() -> None:
    with pytest.raises(ScenarioError, match="hashes nothing"):
        played(Fault(kind="polarization", where="leaf1"), kind="fat-tree", routing="spray")


def test_oversubscription_fills_the_whole_group() -> None:
    job = Job(compute_s=0.0, payload_gb=1000, demand=0.4)
    reader = played(Fault(kind="oversubscription", at=3), job, oversubscription=2.0)
    for said in reader.feed.world.truth:
        for port in said.links:
            assert reader.delta(port, "phy_tx_bytes") / LINE == pytest.approx(1, abs=0.02)


def test_incast_fills_the_last_hop() -> None:
    reader = played(Fault(kind="incast", where="gpu004/r1"), Job(hosts=2))
    said = truth(reader)
    assert reader.delta(said.subject, "phy_tx_bytes") / LINE == pytest.approx(1, abs=0.02)
    assert reader.delta("gpu004/mlx5_1", "rdma_cnp_sent") > 1000
    assert reader.delta(said.subject, HELD) == 0


def test_a_degraded_link_says_so_unless_hidden() -> None:
    for shown in (True, False):
        reader = played(Fault(kind="degraded_link", where="leaf1/up1", shown=shown))
        port = truth(reader).subject
        assert reader.level(port, "netdev_speed_bps") == (1e11 if shown else 4e11)
        assert reader.delta(port, "phy_tx_bytes") <= 0.26 * LINE
        assert (reader.delta(port, "phy_rx_crc_errors") > 0) is not shown


def test_a_flap_is_counted_at_both_ends() -> None:
    reader = played(Fault(kind="flapping_link", where="leaf1/up1", period_s=4, down_s=2), ticks=12)
    for port in truth(reader).links:
        assert reader.now[port, "netdev_carrier_changes"] >= 5
        assert reader.now[port, "phy_link_down_events"] == 3


def test_a_slow_receiver_pauses_its_leaf_and_that_spreads() -> None:
    reader = played(Fault(kind="slow_receiver", where="gpu005/r2"))
    assert truth(reader).subject == "gpu005/mlx5_2"
    assert reader.delta("gpu005/mlx5_2", HOLDS) > 500_000
    assert reader.delta("gpu005/mlx5_2", "pci_stalled_write_events") == 0
    held = reader.moved(HELD, 1)
    leaf = next(b for a, b in planned_cables(reader.feed) if a == "gpu005/mlx5_2")
    assert max(held, key=held.__getitem__) == leaf
    upstream = [port for port, us in held.items() if us > 10_000 and port != leaf]
    assert any(port.startswith("spine") for port in upstream)
    assert all(held[port] < held[leaf] / 2 for port in upstream)


def test_who_shares_a_held_link_is_a_victim() -> None:
    job = Job(collective="all-to-all", compute_s=0.0, payload_gb=1000)
    fast = played(Fault(kind="node_lost"), job).moved("phy_tx_bytes", 1)
    slow = played(Fault(kind="slow_receiver", where="gpu005/r2", share=0.2), job)
    assert slow.moved("phy_tx_bytes", 1)["gpu001/mlx5_2"] < 0.5 * fast["gpu001/mlx5_2"]


def test_a_pause_storm_needs_no_traffic() -> None:
    reader = played(Fault(kind="pause_storm", where="gpu001/r0"), Job(start=1000))
    assert reader.delta("gpu001/mlx5_0", HOLDS) == pytest.approx(950_000, rel=0.01)
    assert reader.delta("gpu001/mlx5_0", "pause_storm_errors") == 1


def test_a_deadlock_stops_a_ring_of_links_for_good() -> None:
    reader = played(Fault(kind="pause_deadlock"))
    for port in truth(reader).links:
        assert reader.delta(port, HELD) == 1_000_000
        assert reader.delta(port, "phy_tx_bytes") < 1e5


def test_a_bus_limit_stalls_and_slows() -> None:
    reader = played(Fault(kind="host_pcie_limit", where="gpu005/r2"))
    assert reader.level("gpu005/mlx5_2", "pci_stalled_write_percent") > 30
    assert reader.level("gpu005/mlx5_1", "pci_stalled_write_percent") == 0
    assert reader.delta("gpu005/mlx5_2", "phy_tx_bytes") < 0.41 * LINE
    item = next(item for item in reader.hellos["gpu005"].blocks[0].objects if item.port == "mlx5_2")
    assert item.info["pcie_width"] == 8


def test_a_straggler_is_quiet_while_its_peers_exchange_a_little() -> None:
    job = Job(compute_s=2.0, jitter=0.0)
    reader = played(Fault(kind="straggler", where="gpu003", extra_s=5.0), job, ticks=5)
    quiet, others = (
        reader.delta(f"{node}/mlx5_0", "phy_tx_bytes") for node in ("gpu003", "gpu001")
    )
    assert quiet < 1e6 < others < 0.2 * LINE


def test_an_error_burst_is_counted_where_it_arrives_and_felt_by_the_flows() -> None:
    reader = played(Fault(kind="error_burst", where="leaf1/up1", rate=500))
    port = truth(reader).subject
    assert reader.delta(port, "phy_rx_crc_errors") == 500
    assert sum(reader.moved("rdma_out_of_sequence", 1).values()) == pytest.approx(500, abs=32)
    assert sum(reader.moved("rdma_packet_sequence_errors", 1).values()) > 400


def test_uneven_rails_leave_the_last_ones_idle() -> None:
    reader = played(Fault(kind="uneven_rails"))
    rails = [reader.delta(f"gpu001/mlx5_{rail}", "phy_tx_bytes") for rail in range(4)]
    assert rails[3] < 0.3 * min(rails[:3])
    assert "gpu001/mlx5_3" in truth(reader).links


def test_swapped_cables_show_in_the_neighbours() -> None:
    reader = played(Fault(kind="miscabled", at=2, duration=2), ticks=7)
    reporting = [name for tick in reader.ticks[1:] for name, _ in tick.hellos]
    nodes = {link.partition("/")[0] for link in reader.feed.world.truth[0].links}
    assert set(reporting) == nodes
    assert len(reporting) == 2 * len(nodes)


def test_infiniband_waits_instead_of_pausing_and_its_error_counters_stick() -> None:
    reader = played(Fault(kind="ecmp_collision"), kind="fat-tree")
    assert max(reader.moved("ib_tx_wait", 1).values()) > 1e6
    assert not any(name.startswith(("pfc", "rdma_ecn")) for _, name in reader.now)
    stuck = played(Fault(kind="saturated_counter", where="leaf1/up1"), kind="fat-tree")
    assert stuck.level(truth(stuck).subject, "ib_symbol_errors") == 0xFFFF


def test_a_fault_has_an_end() -> None:
    fault = Fault(kind="ecmp_collision", at=4, duration=5, where="leaf2/up2")
    reader = played(fault, ticks=12)
    (said,) = reader.feed.world.truth
    assert (said.since_s, said.until_s, said.seen_s) == (4, 9, 4)
    assert reader.delta(said.subject, "phy_tx_bytes") < 0.9 * LINE
