"""Ticks become snapshots."""

from __future__ import annotations

import tracemalloc

import msgspec
import numpy as np
import pytest

from collectors import wire
from collectors.wire import Object
from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.model import Host
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.wire.messages import Frame, Hello, MetricInfo, ObjectInfo, decode
from fabmon.history.derived_metrics import MetricDeriver
from fabmon.history.history import History
from fabmon.history.ring import RateRing
from tests.builders import (
    GBPS,
    SECOND_NS,
    START_NS,
    LeafSpine,
    frame,
    hello,
    neighbour,
    new_pipeline,
    port,
    tick,
    up,
)

RDMA = ("ib_state", "ib_rate_bps", "ib_tx_bytes", "phy_tx_bytes", "netdev_tx_bytes")


def row_of(snapshot: Snapshot, name: str) -> int:
    return next(port.row for port in snapshot.fabric.ports if port.id == name)


def test_bytes_become_bits_per_second_and_utilisation() -> None:
    fabric = LeafSpine(rate_bps=100e6)
    fabric.sent["gpu001/eth0"] = 40e6
    history = History(fabric.hosts)
    history.accept(fabric.step())
    snapshot = history.accept(fabric.step())
    row = row_of(snapshot, "gpu001/eth0")
    assert snapshot.column("tx_bps")[row] == pytest.approx(40e6)
    assert snapshot.tx_util[row] == pytest.approx(0.4)
    assert snapshot.column("rx_bps")[row] == 0
    assert snapshot.up[row] == 1


def test_on_roce_the_wire_counter_is_taken_and_nothing_is_added() -> None:
    history = History([Host(name="gpu001")])
    said = hello(port("mlx5_0", metrics=RDMA))
    history.accept(tick(0, {"gpu001": frame(0, 4, 400 * GBPS, 0, 0, 0)}, {"gpu001": said}))
    snapshot = history.accept(tick(1, {"gpu001": frame(1, 4, 400 * GBPS, 900, 1000, 50)}))
    assert snapshot.column("tx_bps").tolist() == [8000]
    assert snapshot.line_rate_bps.tolist() == pytest.approx([400 * GBPS])


def test_a_line_rate_that_no_port_has_is_not_used() -> None:
    history = History([Host(name="gpu001")])
    said = hello(port("mlx5_0", metrics=RDMA))
    history.accept(tick(0, {"gpu001": frame(0, 4, 1, 0, 0, 0)}, {"gpu001": said}))
    snapshot = history.accept(tick(1, {"gpu001": frame(1, 4, 1, 900, 1000, 50)}))
    assert snapshot.column("tx_bps").tolist() == [8000]
    assert np.isnan(snapshot.line_rate_bps).all()
    assert np.isnan(snapshot.tx_util).all()
    assert np.isnan(snapshot.worst(1)).all()


def test_without_a_wire_counter_rdma_bytes_are_shown() -> None:
    history = History([Host(name="gpu001")])
    said = hello(port("mlx5_0", metrics=RDMA))
    history.accept(tick(0, {"gpu001": frame(0, 4, 400 * GBPS, 0, None, 0)}, {"gpu001": said}))
    snapshot = history.accept(tick(1, {"gpu001": frame(1, 4, 400 * GBPS, 900, None, 50)}))
    assert snapshot.column("tx_bps").tolist() == [7200]


def hot_roce(seq: int, *, ethtool: bool) -> Frame:
    """95 Gb/s on the wire, almost none at the interface, which does not count RDMA."""
    clock = (seq + 1) * SECOND_NS
    phy: list[int | None] | None = [clock, 95 * GBPS // 8 * seq] if ethtool else None
    return Frame(seq, START_NS + clock, clock, [phy, [clock, 1000 * seq]])


def two_sources(*more: Object) -> Hello:
    """A RoCE port that ethtool and the interface both count."""
    blocks = [
        wire.BlockLayout(source, 1, [port("mlx5_0", metrics=[metric]), *rest])
        for source, metric, rest in (
            ("ethtool", "phy_tx_bytes", []),
            ("netdev", "netdev_tx_bytes", more),
        )
    ]
    message = decode(wire.hello(blocks, {"interval_s": 1.0}))
    assert isinstance(message, Hello)
    return message


def test_a_busy_port_whose_wire_counter_is_missing_is_not_shown_idle() -> None:
    history = History([Host(name="gpu001")])
    said = two_sources()
    for seq in range(3):
        heard = {"gpu001": hot_roce(seq, ethtool=True)}
        snapshot = history.accept(tick(seq, heard, {"gpu001": said} if seq == 0 else {}))
    assert snapshot.column("tx_bps")[0] == pytest.approx(95 * GBPS)
    for seq in range(3, 8):
        # A neighbour comes meanwhile: the choice of the counter outlasts that.
        richer = {"gpu001": two_sources(neighbour("mlx5_0", "aa:bb"))} if seq == 4 else {}
        snapshot = history.accept(tick(seq, {"gpu001": hot_roce(seq, ethtool=False)}, richer))
    assert np.isnan(snapshot.column("tx_bps")[0])
    assert snapshot.last_heat[0, 0] == pytest.approx(95 * GBPS)


def test_a_wire_counter_that_the_port_lost_is_replaced_by_the_next_best() -> None:
    history = History([Host(name="gpu001")])
    for seq in range(3):
        heard = {"gpu001": hot_roce(seq, ethtool=True)}
        history.accept(tick(seq, heard, {"gpu001": two_sources()} if seq == 0 else {}))
    said = hello(port("mlx5_0", metrics=["netdev_tx_bytes"]))
    for seq in range(3, 6):
        heard = {"gpu001": frame(seq, 1000 * seq)}
        snapshot = history.accept(tick(seq, heard, {"gpu001": said} if seq == 3 else {}))
    assert snapshot.column("tx_bps").tolist() == [8000]


def test_a_reported_rate_is_shown_where_no_counter_has_the_wire() -> None:
    history = History([Host(name="gpu001")])
    said = hello(port("mlx5_0", metrics=("ib_tx_bps", "netdev_tx_bytes")))
    history.accept(tick(0, {"gpu001": frame(0, 352 * GBPS, 0)}, {"gpu001": said}))
    snapshot = history.accept(tick(1, {"gpu001": frame(1, 351 * GBPS, 50)}))
    assert snapshot.column("tx_bps").tolist() == pytest.approx([351 * GBPS])


def test_the_worst_priority_is_the_pause_and_a_second_of_it_is_one() -> None:
    metrics = ("pfc_rx_pause_us_prio3", "pfc_rx_pause_us_prio4", "pause_rx_us")
    history = History([Host(name="gpu001")])
    said = hello(port("mlx5_0", metrics=metrics))
    history.accept(tick(0, {"gpu001": frame(0, 0, 0, None)}, {"gpu001": said}))
    snapshot = history.accept(tick(1, {"gpu001": frame(1, 250_000, 80_000, None)}))
    assert snapshot.column("pause_rx")[0] == pytest.approx(0.25)
    assert np.isnan(snapshot.column("pause_tx")[0])


def test_a_metric_that_this_catalog_does_not_know_is_kept_by_name() -> None:
    history = History([Host(name="gpu001")])
    said = hello(port("eth0", metrics=("netdev_up",)))
    newer = ObjectInfo("eth0", "ethernet", "eth0", {}, ("warp_bytes",))
    block = msgspec.structs.replace(said.blocks[0], objects=(newer,))
    metrics = {"warp_bytes": MetricInfo("bytes", "wrap64")}
    said = msgspec.structs.replace(said, blocks=(block,), metrics=metrics)
    history.accept(tick(0, {"gpu001": frame(0, 10)}, {"gpu001": said}))
    snapshot = history.accept(tick(1, {"gpu001": frame(1, 30)}))
    assert snapshot.column("warp_bytes").tolist() == [20]


def test_the_age_of_a_port_is_that_of_its_node_where_another_has_two_values_of_a_metric() -> None:
    history = History([Host(name="gpu001"), Host(name="gpu002")])
    twice = port("eth0", metrics=("netdev_tx_bytes",))
    said = {
        "gpu001": hello(twice, twice._replace(id="eth0/page")),
        "gpu002": hello(port("eth0", metrics=("netdev_tx_bytes",), exporter="node")),
    }
    for seq in range(6):
        frames = {"gpu001": frame(seq, 10 * seq, 10 * seq)}
        if seq < 2:
            frames["gpu002"] = frame(seq, 10 * seq)
        last = history.accept(tick(seq, frames, said if seq == 0 else {}))
    ages_s = {port.id: float(last.age_s[port.row]) for port in last.fabric.ports}
    assert ages_s == {"gpu001/eth0": pytest.approx(0), "gpu002/eth0": pytest.approx(4)}


def test_a_silent_node_becomes_stale_and_its_last_value_is_kept() -> None:
    fabric = LeafSpine()
    fabric.sent["gpu001/eth0"] = 40e6
    history = History(fabric.hosts)
    for _ in range(3):
        last = history.accept(fabric.step())
    for seq in range(3, 7):
        last = history.accept(tick(seq))
    row = row_of(last, "gpu001/eth0")
    assert last.age_s[row] == pytest.approx(4.0)
    assert np.isnan(last.column("tx_bps")[row])
    assert last.last_heat[0, row] == pytest.approx(40e6)


def both(netdev: str = "eth0") -> Hello:
    """A port that a probe reads, and that the page of node_exporter has too."""
    blocks = [
        wire.BlockLayout("netdev", 1, [port("eth0", metrics=["netdev_tx_bytes"])]),
        wire.BlockLayout(
            "node_exporter",
            1,
            [port(netdev, metrics=["netdev_tx_bytes"], exporter="node_exporter")],
        ),
    ]
    message = decode(wire.hello(blocks, {"interval_s": 1.0}))
    assert isinstance(message, Hello)
    return message


@pytest.mark.parametrize("is_reversed", [False, True])
def test_of_two_sources_of_a_port_the_one_with_the_better_clock_counts(is_reversed: bool) -> None:
    """The probe dates its reads; the page is dated by a scrape that came 0.3 s late once."""
    history = History([Host(name="gpu001")])
    said = both()
    if is_reversed:
        said = msgspec.structs.replace(said, blocks=said.blocks[::-1])
    seen = []
    for seq in range(8):
        clock = (seq + 1) * SECOND_NS
        late = clock + (300_000_000 if seq == 3 else 0)
        probe = None if seq > 4 else [clock, seq * 1000]
        blocks = [probe, [late, seq * 1000]]
        frame = Frame(seq, START_NS + clock, clock, blocks[::-1] if is_reversed else blocks)
        snapshot = history.accept(tick(seq, {"gpu001": frame}, {"gpu001": said} if not seq else {}))
        seen.append(float(snapshot.column("tx_bps")[0]))
    assert len(snapshot.fabric.ports) == 1
    assert seen[1:5] == [8000, 8000, 8000, 8000], "not 6154 and 11429, as the page has it"
    assert seen[7] == pytest.approx(8000), "the page counts where the probe is silent"


def test_a_port_that_is_read_every_26_s_is_as_old_as_its_last_read_and_not_stale() -> None:
    """The states of an HCA are read every tick, its bytes in rounds of 26 s."""
    history = History([Host(name="sm", sources=("+ib_fabric",))])
    blocks = [
        wire.BlockLayout("ib_fabric", 1, [port("p1", metrics=["ib_state"])]),
        wire.BlockLayout("ib_fabric_hcas", 26, [port("p1", metrics=["ib_tx_bytes"])]),
    ]
    said = decode(wire.hello(blocks, {"interval_s": 1.0}))
    assert isinstance(said, Hello)
    ages = []
    for seq in range(120):
        clock = (seq + 1) * SECOND_NS
        read = [clock, seq * 1000] if seq in (0, 26, 52) else None
        each = Frame(seq, START_NS + clock, clock, [[clock, 4], read])
        snapshot = history.accept(tick(seq, {"sm": each}, {"sm": said} if seq == 0 else {}))
        ages.append(float(snapshot.age_s[0]))
        is_known = bool(np.isfinite(snapshot.column("tx_bps")[0]))
        assert is_known is (26 <= seq <= 52 + 65)
        assert bool(snapshot.stale[0]) is (seq > 52 + 65)
        assert (snapshot.state(0) == "stale") is (seq > 52 + 65)
    assert ages[26:79] == [*range(26), *range(27)]
    assert snapshot.period_s.tolist() == [26]


def test_the_window_ends_at_the_snapshot_even_after_later_ticks() -> None:
    fabric = LeafSpine()
    history = History(fabric.hosts)
    moments = []
    for rate in (0, 10e6, 20e6, 30e6, 40e6):
        fabric.sent["gpu001/eth0"] = rate
        moments.append(history.accept(fabric.step()))
    frozen = moments[2]
    row = row_of(frozen, "gpu001/eth0")
    window = frozen.window("tx_bps", [row], 3)
    assert np.isnan(window[0, 0])
    assert window[0, 1:].tolist() == pytest.approx([10e6, 20e6])
    assert moments[4].worst(2).tolist() == pytest.approx([0.3, 0.4])


def test_a_tick_that_never_came_is_a_gap() -> None:
    fabric = LeafSpine()
    history = History(fabric.hosts)
    for _ in range(3):
        history.accept(fabric.step())
    snapshot = history.accept(tick(4))
    assert np.isnan(snapshot.worst(3)).tolist() == [False, True, False]


def test_the_ring_has_no_values_before_its_first_tick() -> None:
    fabric = LeafSpine()
    history = History(fabric.hosts, ring_ticks=4)
    first = history.accept(fabric.step())
    for _ in range(9):
        last = history.accept(fabric.step())
    assert np.isnan(first.worst(1)).all()
    assert not np.isnan(last.worst(4)).any()
    assert np.isnan(last.worst(6)[:2]).all()


def test_nodes_that_sent_nothing_have_a_state_and_no_ports() -> None:
    history = History([Host(name="gpu001"), Host(name="gpu002")])
    snapshot = history.accept(tick(0, statuses=up("gpu001")))
    assert [node.ports for node in snapshot.fabric.nodes] == [(), ()]
    assert snapshot.statuses["gpu002"].state == "queued"
    assert snapshot.time_ns == START_NS


def test_a_new_neighbour_does_not_interrupt_the_rates() -> None:
    history = History([Host(name="a")])
    history.accept(tick(0, {"a": frame(0, 1, 0, 0, 0)}, {"a": hello(port("eth0"))}))
    richer = hello(port("eth0"), neighbour("eth0", "aa:bb"))
    snapshot = history.accept(tick(1, {"a": frame(1, 1, 125, 0, 0)}, {"a": richer}))
    assert snapshot.column("tx_bps").tolist() == [1000]


def test_after_a_reboot_the_counters_start_again() -> None:
    history = History([Host(name="a")])
    before, after = (hello(port("eth0"), boot_id=boot) for boot in ("one", "two"))
    history.accept(tick(0, {"a": frame(0, 1, 100, 0, 0)}, {"a": before}))
    snapshot = history.accept(tick(1, {"a": frame(1, 1, 400, 0, 0)}, {"a": after}))
    assert np.isnan(snapshot.column("tx_bps")).all()


def test_rows_stay_when_hardware_comes_and_goes() -> None:
    history = History([Host(name="a"), Host(name="b")])
    first = history.accept(tick(0, hellos={"a": hello(port("eth1")), "b": hello(port("eth0"))}))
    second = history.accept(tick(1, hellos={"a": hello(port("eth0"), port("eth1"))}))
    third = history.accept(tick(2, hellos={"a": hello(port("eth0"))}))
    assert row_of(first, "a/eth1") == row_of(second, "a/eth1")
    assert row_of(first, "b/eth0") == row_of(third, "b/eth0")
    assert [port.name for port in third.fabric.nodes[0].ports] == ["eth0"]


def heat(**values: float) -> dict[str, float]:
    """The HEAT columns of a port of 400 Gb/s, on a PCIe link of 200 Gb/s, that has these rates."""
    row = np.array([list(values.values())], np.float32)
    columns = {name: place for place, name in enumerate(values)}
    deriver = MetricDeriver(columns, np.ones((1, len(values)), np.bool_))
    found = deriver.heat(row, np.array([4e11], np.float32), np.array([2e11], np.float32))
    return {name: float(found[HEAT.index(name)][0]) for name in HEAT}


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        pytest.param({"pcie_tx_bytes": 10e9, "pcie_rx_bytes": 5e9}, 0.4, id="a GPU that counts"),
        pytest.param({"pcie_tx_bps": 60e9, "pcie_rx_bps": 100e9}, 0.45, id="a GPU that measures"),
        pytest.param({"nvlink_tx_bytes": 10e9}, float("nan"), id="a GPU without PCIe counters"),
        pytest.param({"phy_tx_bytes": 5e9, "phy_rx_bytes": 20e9}, 0.8, id="what a NIC receives"),
    ],
)
def test_the_share_of_what_the_pcie_link_carries(rates: dict[str, float], expected: float) -> None:
    assert heat(**rates)["pcie"] == pytest.approx(expected, nan_ok=True)


def roce(stack: float, rdma: float, **more: float) -> dict[str, float]:
    """Bytes a second of a RoCE port, the same in both directions."""
    pairs = {"netdev": stack, "ib": rdma, **more}
    return {f"{name}_{way}_bytes": rate for name, rate in pairs.items() for way in ("tx", "rx")}


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        pytest.param(roce(1e9, 9e9), 0.1, id="stack and RDMA together"),
        pytest.param(roce(1e9, 18e9, phy=20e9), 0.05, id="of the wire"),
        pytest.param(roce(1e6, 0, phy=1e6), 0.0, id="idle"),
        pytest.param({"netdev_tx_bytes": 1e9, "netdev_rx_bytes": 1e9}, None, id="no RDMA"),
        pytest.param({**roce(1e9, 9e9), "ib_state": 4}, None, id="InfiniBand counts IPoIB"),
    ],
)
def test_the_share_of_traffic_that_is_not_rdma(
    rates: dict[str, float], expected: float | None
) -> None:
    share = heat(**rates)["non_rdma"]
    assert share == pytest.approx(float("nan") if expected is None else expected, nan_ok=True)


@pytest.mark.parametrize(
    ("rates", "column", "expected"),
    [
        ({"rdma_rx_drops": 100, "rdma_rx_limit_drops": 100}, "drops", 100),
        ({"phy_rx_errors": 10, "phy_rx_crc_errors": 10, "phy_rx_symbol_errors": 0}, "errors", 10),
        ({"phy_rx_discards": 50, "phy_rx_discards_prio3": 50, "phy_tx_discards": 1}, "drops", 51),
        ({"phy_rx_discards_prio3": 50, "phy_rx_discards_prio4": 1}, "drops", 51),
        ({"phy_rx_discards": float("nan"), "phy_rx_discards_prio3": 50}, "drops", 50),
        ({"phy_rx_fec_corrected_blocks": 5e4, "phy_rx_crc_errors": 1}, "errors", 1),
        ({"phy_tx_discards": 9, "phy_tx_discards_prio3": 9, "netdev_tx_drops": 9}, "tx_drops", 9),
        ({"phy_tx_discards_prio3": 5, "phy_tx_discards_prio4": 4}, "tx_drops", 9),
        ({"netdev_tx_drops": 9, "netdev_rx_drops": 1, "phy_rx_discards": 1}, "tx_drops", 9),
    ],
)
def test_nothing_is_counted_twice_and_corrected_errors_do_not_count(
    rates: dict[str, float], column: str, expected: float
) -> None:
    assert heat(**rates)[column] == expected


def test_single_links_inside_a_node_are_kept_for_two_minutes_only() -> None:
    ring = RateRing(900)
    ring.add_ports(np.array([False, True]))
    ring.add_ports(np.array([False, True, True, False]))
    for seq in range(300):
        values = seq + np.arange(4) / 10
        ring.append(seq, np.tile(values.astype(np.float32), (len(HEAT), 1)), 0.0)
    drawn = ring.window("tx_bps", [3, 1, 0, 2], 250, 299)
    np.testing.assert_allclose(drawn[:, -1], [299.3, 299.1, 299.0, 299.2], rtol=1e-6)
    assert (~np.isnan(drawn)).sum(axis=1).tolist() == [250, 120, 250, 120]


def test_windows_of_all_ports_and_of_some_are_the_same_over_the_end_of_the_ring() -> None:
    ring, ports = RateRing(120), 600
    for seq in range(130):
        heat = np.tile(seq + np.arange(ports) / 1000, (len(HEAT), 1)).astype(np.float32)
        ring.append(seq, heat, 0.0)
        drawn = ring.window("ecn", range(ports), 10, seq)
        assert np.array_equal(drawn, ring.window("ecn", np.arange(ports), 10, seq), equal_nan=True)
        assert np.array_equal(drawn[:3], ring.window("ecn", [0, 1, 2], 10, seq), equal_nan=True)
    assert drawn[:, 0].tolist() == pytest.approx((120 + np.arange(ports) / 1000).tolist())


def test_the_window_of_all_ports_does_not_let_its_reader_change_the_history() -> None:
    ring = RateRing(120)
    for seq in range(20):
        ring.append(seq, np.ones((len(HEAT), 3), np.float32), 0.0)
    with pytest.raises(ValueError, match="read-only"):
        ring.window("tx_bps", range(3), 10, 19)[0] = 0


def test_a_hello_of_a_node_that_no_list_of_hosts_has_adds_the_node() -> None:
    """As in a damaged recording."""
    history = History(LeafSpine().hosts)
    snapshot = history.accept(tick(0, hellos={"stranger": hello(port("eth0"))}))
    assert "stranger/eth0" in {each.id for each in snapshot.fabric.ports}


def test_a_column_that_no_port_has_had_is_not_kept_and_reads_as_unknown() -> None:
    ring = RateRing(5)
    heat = np.full((len(HEAT), 3), np.nan, np.float32)
    errors = HEAT.index("errors")
    for seq in range(3):
        ring.append(seq, heat, 0.0)
    assert np.isnan(ring.window("errors", range(3), 3, 2)).all()
    heat[errors, 1] = 7
    ring.append(3, heat, 0.0)
    # More ports, after a column is in use and others are not.
    heat = np.concatenate([heat, np.full((len(HEAT), 97), np.nan, np.float32)], axis=1)
    heat[errors, 99] = 8
    ring.append(4, heat, 0.0)
    assert np.nan_to_num(ring.window("errors", [1, 99], 5, 4), nan=-1).tolist() == [
        [-1, -1, -1, 7, 7],
        [-1, -1, -1, -1, 8],
    ]
    assert np.isnan(ring.window("drops", [1, 99], 5, 4)).all()


def test_ports_that_come_later_are_unknown_before_and_take_no_more_room_than_they_need() -> None:
    ring = RateRing(120)
    tracemalloc.start()
    for seq, ports in enumerate((500, 500, 1000, 1010, 1400, 1400)):
        ring.append(seq, np.full((len(HEAT), ports), seq, np.float32), 0.0)
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for column in ("tx_bps", "ecn"):
        drawn = ring.window(column, [499, 999, 1009, 1399], 6, 5)
        assert (~np.isnan(drawn)).sum(axis=1).tolist() == [6, 4, 3, 2]
        assert drawn[:, -1].tolist() == [5.0] * 4
    assert size_bytes < 1.1 * 1400 * 120 * len(HEAT) * 4


def test_recorded_sums_of_a_ports_sources_are_added_up() -> None:
    """On a RoCE port ethtool, netdev and rdma have sums of their own: none hides another."""
    sums = [
        wire.BlockLayout(source, 1, [port("mlx5_0", metrics=("port_errors", "port_drops"))])
        for source in ("ethtool", "netdev", "rdma")
    ]
    said = decode(wire.hello(sums, {"interval_s": 1.0}))
    assert isinstance(said, Hello)
    history = History([Host(name="gpu001")])

    def read(seq: int, *sums: tuple[int | None, int | None]) -> Frame:
        clock_ns = (seq + 1) * SECOND_NS
        return Frame(seq, START_NS + clock_ns, clock_ns, [[clock_ns, *each] for each in sums])

    history.accept(tick(0, {"gpu001": read(0, (0, 0), (0, 0), (None, 0))}, {"gpu001": said}))
    snapshot = history.accept(tick(1, {"gpu001": read(1, (7, 2), (0, 3), (None, 0))}))
    assert snapshot.column("damage").tolist() == [7]
    assert snapshot.column("errors").tolist() == [7]
    assert snapshot.column("drops").tolist() == [5]


def test_a_recorded_sum_of_pauses_is_not_added_to_its_parts() -> None:
    transitions = ("pause_rx_transitions", "pfc_rx_transitions_prio3", "pfc_rx_transitions_prio4")
    history = History([Host(name="gpu001")])
    said = hello(port("mlx5_0", metrics=transitions))
    history.accept(tick(0, {"gpu001": frame(0, 0, 0, 0)}, {"gpu001": said}))
    snapshot = history.accept(tick(1, {"gpu001": frame(1, 50, 40, 10)}))
    assert snapshot.column("xoff").tolist() == [50]


@pytest.mark.parametrize("bps", [0.0, -1.0, 1e-300, 1e300])
def test_a_line_rate_of_a_damaged_recording_that_no_hosts_file_allows_is_unknown(
    bps: float,
) -> None:
    pipeline = new_pipeline([Host(name="gpu001", speeds=(("*", bps),))])
    known = hello(port("mlx5_0", "02:00:00:00:00:01"))
    snapshot = pipeline.accept(
        tick(0, {"gpu001": frame(0, 0, 0, 0, 0)}, {"gpu001": known}, up("gpu001"))
    ).snapshot
    assert np.isnan(snapshot.line_rate_bps).all()
