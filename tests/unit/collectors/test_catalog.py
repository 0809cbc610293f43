from __future__ import annotations

import re

import pytest

from collectors.catalog import CATALOG, GAUGE, ROWS, WRAP32, WRAP64, require
from collectors.loop.source_loader import load_source
from collectors.readers.ethtool_names import RULES, USUAL, metric_of
from collectors.registry import SOURCES
from collectors.source import Source
from collectors.sources.rdma import SPELLINGS
from tests.fixtures import nic_drivers

TOPICS = {
    "traffic",
    "packets",
    "pause",
    "congestion",
    "error",
    "drop",
    "corrected",
    "state",
    "probe",
}
UNITS = {
    "Hz",
    "bytes",
    "bits",
    "blocks",
    "packets",
    "events",
    "operations",
    "ticks",
    "seconds",
    "us",
    "bps",
    "percent",
    "state",
}
KINDS = {WRAP64, WRAP32, GAUGE, "sat4", "sat8", "sat16", "sat32"}

# Names that the console is written against.
PROMISED = {
    *(f"{family}_{way}_bytes" for family in ("phy", "ib", "netdev") for way in ("tx", "rx")),
    *(f"pfc_{way}_pause_us_prio{prio}" for way in ("tx", "rx") for prio in range(8)),
    *(f"pfc_{way}_frames_prio{prio}" for way in ("tx", "rx") for prio in range(8)),
    *("netdev_up", "netdev_speed_bps", "ib_state", "ib_rate_bps", "pause_rx_us", "pause_tx_us"),
    *("rdma_ecn_marked", "rdma_cnp_sent", "rdma_cnp_handled"),
}


def test_every_name_is_one_row() -> None:
    rows = [metric.name for metric in ROWS]
    assert len(rows) == len(set(rows)) == len(CATALOG) > 200


def test_every_row_speaks_the_closed_vocabulary() -> None:
    for name, metric in CATALOG.items():
        assert name == metric.name
        assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)+", name), name
        assert metric.topic in TOPICS, name
        assert metric.unit in UNITS, name
        assert metric.kind in KINDS, name
        assert metric.direction in ("tx", "rx", ""), name
        assert metric.meaning, name
        assert metric.source, name


def test_names_unit_and_direction_agree() -> None:
    for name, metric in CATALOG.items():
        words = name.split("_")
        stem = [word for word in words if not word.startswith("prio")][-1]
        for unit in ("bytes", "us", "bps", "percent"):
            assert (stem == unit) == (metric.unit == unit) or metric.unit == "bytes", name
        for direction in ("tx", "rx"):
            if direction in words:
                assert metric.direction == direction, name
    assert all(CATALOG[name].kind == GAUGE for name in CATALOG if name.endswith("_bps"))


def test_traffic_is_bytes_or_a_rate_in_one_direction_unless_it_says_both() -> None:
    traffic = [metric for metric in CATALOG.values() if metric.topic == "traffic"]
    assert len(traffic) > 8
    for metric in traffic:
        assert (metric.unit, metric.kind) in (("bytes", WRAP64), ("bps", GAUGE)), metric.name
        ways = ("",) if metric.name.endswith("_both_bps") else ("tx", "rx")
        assert metric.direction in ways, metric.name


def test_the_promised_names_are_there() -> None:
    assert set(CATALOG) >= PROMISED


def test_every_source_can_be_loaded_and_is_called_as_it_is_registered() -> None:
    for name in SOURCES:
        loaded = load_source(name)
        assert issubclass(loaded, Source)
        assert loaded.name == name
        assert loaded.every >= 1
        assert 0 < loaded.deadline_s <= 2


def test_every_rdma_metric_has_spellings() -> None:
    assert {name for name in CATALOG if name.startswith("rdma_")} == set(SPELLINGS)


def test_every_rule_of_every_driver_leads_into_the_catalog() -> None:
    for driver, rules in RULES.items():
        if driver in (USUAL, "mlx4_en") or driver in nic_drivers.NAMES:
            continue  # tested with names that such drivers list
        for pattern, metric in rules:
            if (pattern, metric) in RULES[USUAL]:
                continue
            example = pattern.replace("([rt]x)", "rx").replace(r"(\d)", "3").replace("\\.", ".")
            example = example.replace("(?:_[rt]x)?", "")
            example = re.sub(r"\((\w+)\|\w+\)", r"\1", example)
            name = metric_of(driver, example)[0]
            assert name in CATALOG, (driver, pattern, example, name)


def test_the_usual_names_lead_into_the_catalog() -> None:
    for pattern, template in RULES[USUAL]:
        filled = {template.format(way, "3") for way in ("rx", "tx")}
        assert filled <= set(CATALOG), pattern


def test_what_no_rule_names_is_left_alone() -> None:
    for driver in RULES:
        for name in ("rx0_bytes", "[0]: rx_ucast_bytes", "tx_queue_3_bytes", "ch0_arm", ""):
            assert metric_of(driver, name)[0] is None, (driver, name)
    assert metric_of("e1000e", "rx_bytes")[0] is None


def test_a_misspelt_name_is_refused() -> None:
    require("phy_tx_bytes", "netdev_up")
    with pytest.raises(KeyError, match="phy_tx_bites"):
        require("phy_tx_bytes", "phy_tx_bites")
