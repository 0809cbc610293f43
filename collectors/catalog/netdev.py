"""What the kernel's network stack counts of an interface, RDMA not included."""

from __future__ import annotations

from typing import Iterator

from collectors.catalog.metric import GAUGE, WRAP32, WRAP64, Metric

_DOC = "Linux Documentation/networking/statistics.rst"


def netdev_metrics() -> Iterator[Metric]:
    """The `netdev_*` rows."""
    yield Metric("netdev_up", "state", GAUGE, "", "state", "1 when the interface is up", _DOC)
    yield Metric(
        "netdev_carrier_changes",
        "events",
        WRAP32,
        "",
        "state",
        "times the link went up or down since the driver loaded",
        _DOC,
    )
    yield Metric("netdev_speed_bps", "bps", GAUGE, "", "state", "line rate, one direction", _DOC)
    yield Metric("netdev_mtu", "bytes", GAUGE, "", "state", "largest packet", _DOC)
    for direction, verb in (("rx", "received"), ("tx", "sent")):
        for what, unit, topic, meaning in (
            ("bytes", "bytes", "traffic", f"bytes {verb} through the kernel (RDMA bypasses it)"),
            ("packets", "packets", "packets", f"packets {verb} through the kernel"),
            ("errors", "packets", "error", f"packets not {verb} because of an error"),
            ("drops", "packets", "drop", f"packets to be {verb} that were dropped"),
        ):
            name = f"netdev_{direction}_{what}"
            yield Metric(name, unit, WRAP64, direction, topic, meaning, _DOC)
