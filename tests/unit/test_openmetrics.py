"""Names in Prometheus: one for each metric of the catalog, and the way back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collectors.catalog import CATALOG, GAUGE
from fabmon.fabric.openmetrics import EXPOSED, MetricMapping, meant


@pytest.mark.parametrize(
    ("metric", "sample", "factor"),
    [
        ("netdev_rx_bytes", "fabmon_netdev_rx_bytes_total", 1),
        ("netdev_rx_errors", "fabmon_netdev_rx_errors_total", 1),
        ("netdev_up", "fabmon_netdev_up", 1),
        ("netdev_mtu", "fabmon_netdev_mtu_bytes", 1),
        ("netdev_speed_bps", "fabmon_netdev_speed_bytes_per_second", 8),
        ("ib_rate_bps", "fabmon_ib_rate_bytes_per_second", 8),
        ("ib_tx_wait", "fabmon_ib_tx_wait_total", 1),
        ("pause_rx_us", "fabmon_pause_rx_seconds_total", 1_000_000),
        ("pfc_rx_pause_us_prio3", "fabmon_pfc_rx_pause_prio3_seconds_total", 1_000_000),
        ("pfc_rx_frames_prio3", "fabmon_pfc_rx_frames_prio3_total", 1),
        ("phy_tx_bytes_prio5", "fabmon_phy_tx_prio5_bytes_total", 1),
        ("phy_rx_fec_corrected_bits", "fabmon_phy_rx_fec_corrected_bit_events_total", 1),
        ("pci_stalled_read_events", "fabmon_pci_stalled_read_seconds_total", 1),
        ("pci_stalled_read_percent", "fabmon_pci_stalled_read_ratio", 100),
        ("probe_late_us", "fabmon_probe_late_seconds", 1_000_000),
    ],
)
def test_a_metric_and_its_name(metric: str, sample: str, factor: float) -> None:
    assert EXPOSED[metric].sample == sample
    assert meant(sample) == MetricMapping(metric, factor)


def test_every_metric_of_the_catalog_has_a_name_that_leads_back_to_it_alone() -> None:
    assert len({shown.sample for shown in EXPOSED.values()}) == len(CATALOG)
    assert len({shown.family for shown in EXPOSED.values()}) == len(CATALOG)
    for name, shown in EXPOSED.items():
        assert meant(shown.sample) == MetricMapping(name, shown.factor)


def test_names_follow_the_rules_of_openmetrics() -> None:
    families = {shown.family for shown in EXPOSED.values()}
    for name, shown in EXPOSED.items():
        assert re.fullmatch(r"fabmon(_[a-z][a-z0-9]*)+", shown.family), name
        assert shown.family.endswith(shown.unit), name
        assert (shown.type == "gauge") == (CATALOG[name].kind == GAUGE), name
        assert shown.sample == shown.family + ("_total" if shown.type == "counter" else "")
        assert f"{shown.family}_total" not in families, name


def test_the_page_for_people_says_the_same() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    pairs = re.findall(r"`(\w+)`(?::| is)\s`(fabmon_\w+)`", page)
    assert len(pairs) >= 8
    for metric, sample in pairs:
        assert EXPOSED[metric].sample == sample


def test_a_foreign_name_means_nothing() -> None:
    assert meant("node_network_receive_bytes_total") is None
    assert meant("fabmon_netdev_rx_bytes") is None
