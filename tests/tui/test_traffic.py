"""The words for a port's traffic: what it is of, and what it leaves out."""

from __future__ import annotations

import pytest

from collectors.wire import Object
from fabmon.fabric.model import Host
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.wording import Unit
from fabmon.history.history import History
from fabmon.tui.metrics import combined_traffic_text, scope, traffic_text
from tests.builders import frame, hello, tick


def gpu(**levels: int) -> Snapshot:
    """One GPU with these gauges or counters, all of them twice heard of."""
    history = History([Host(name="gpu001")])
    said = hello(Object("gpu0", "gpu", "gpu0", {}, tuple(levels)))
    history.accept(tick(0, {"gpu001": frame(0, *levels.values())}, {"gpu001": said}))
    return history.accept(tick(1, {"gpu001": frame(1, *levels.values())}))


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("nvlink_tx_bytes", "all its NVLinks"),
        ("nvlink_tx_bps", "all its NVLinks"),
        ("xgmi_tx_bytes", "all its xGMI links"),
        ("pcie_tx_bytes", ""),
    ],
)
def test_a_gpus_traffic_is_called_by_the_links_that_it_has(metric: str, expected: str) -> None:
    assert scope(gpu(**{metric: 1}), 0) == expected


def test_directions_that_are_not_distinguished_are_shown_together_and_as_neither() -> None:
    snapshot = gpu(nvlink_both_bps=8 * 205 * 10**9)
    assert traffic_text(snapshot, 0, Unit.GBIT) == (
        "205 GB/s both directions together  (all its NVLinks)"
    )
    assert "tx" not in combined_traffic_text(snapshot, 0, Unit.PERCENT)


def test_where_the_directions_are_known_their_sum_is_not_shown() -> None:
    assert combined_traffic_text(gpu(nvlink_both_bps=800, nvlink_tx_bps=400), 0, Unit.GBIT) == ""
