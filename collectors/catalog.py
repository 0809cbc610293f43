"""Every metric once: name, unit, kind, direction, topic, meaning, and where it is documented.

A name is what the screen, the export and the recording call it; driver spellings stay inside the
source that reads them. Values on the wire are integers in the unit given here.

Kinds say what a smaller value than the last one means:

    wrap64      a reset (a 64-bit byte counter at 800 Gb/s needs years to wrap)
    wrap32      a wrap, if the step is physically possible, else a reset
    saturating  sticks at 2**bits - 1; there the true value is unknown, not unchanged
    gauge       a level; nothing is inferred from its change
"""

from __future__ import annotations

from typing import Dict, Iterable, NamedTuple

WRAP64 = "wrap64"
WRAP32 = "wrap32"
GAUGE = "gauge"


def saturating(bits: int) -> str:
    """The kind of a counter of `bits` bits that sticks at its maximum, as IBTA port counters do."""
    return f"sat{bits}"


class Metric(NamedTuple):
    """One row of the catalog.

    `unit` is the unit of the value; a rate is that per second. `direction` is `tx`, `rx` or empty.
    `topic` is `traffic` (bytes), `packets`, `pause`, `congestion`, `error`, `drop`, `state` or
    `probe`. `source` says where the counter is documented.
    """

    name: str
    unit: str
    kind: str
    direction: str
    topic: str
    meaning: str
    source: str


def _netdev() -> Iterable[Metric]:
    doc = "Linux Documentation/networking/statistics.rst"
    yield Metric("netdev_up", "state", GAUGE, "", "state", "1 when the interface is up", doc)
    yield Metric(
        "netdev_carrier_changes",
        "events",
        WRAP32,
        "",
        "state",
        "times the link went up or down since the driver loaded",
        doc,
    )
    yield Metric("netdev_speed_bps", "bps", GAUGE, "", "state", "line rate, one direction", doc)
    yield Metric("netdev_mtu", "bytes", GAUGE, "", "state", "largest packet", doc)
    for direction, verb in (("rx", "received"), ("tx", "sent")):
        for what, unit, topic, meaning in (
            ("bytes", "bytes", "traffic", f"bytes {verb} through the kernel (RDMA bypasses it)"),
            ("packets", "packets", "packets", f"packets {verb} through the kernel"),
            ("errors", "packets", "error", f"packets not {verb} because of an error"),
            ("drops", "packets", "drop", f"packets to be {verb} that the kernel dropped"),
        ):
            name = f"netdev_{direction}_{what}"
            yield Metric(name, unit, WRAP64, direction, topic, meaning, doc)


def _probe() -> Iterable[Metric]:
    doc = "docs/wire.md"
    yield Metric(
        "probe_cpu_us", "us", WRAP64, "", "probe", "CPU time the probe has used on this node", doc
    )
    yield Metric(
        "probe_read_us", "us", GAUGE, "", "probe", "how long this source's last read took", doc
    )
    yield Metric("probe_rss_bytes", "bytes", GAUGE, "", "probe", "memory the probe holds", doc)
    yield Metric("probe_late_us", "us", GAUGE, "", "probe", "how late the last frame started", doc)


CATALOG: Dict[str, Metric] = {
    metric.name: metric for family in (_netdev(), _probe()) for metric in family
}
"""Name -> metric."""
