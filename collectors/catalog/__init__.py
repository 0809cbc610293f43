"""Every metric once: name, unit, kind, direction, topic, meaning, and where it is documented.

A name is what the screen, the export and the recording call it; driver spellings stay inside the
source that reads them. Values on the wire are integers in the unit given here. A family of metrics
is one small module; adding a metric is one row in it.

Kinds say what a smaller value than the last one means:

    wrap64      a reset (a 64-bit byte counter at 800 Gb/s needs years to wrap)
    wrap32      a wrap, if the step is physically possible, else a reset
    saturating  sticks at 2**bits - 1; there the true value is unknown, not unchanged
    gauge       a level; nothing is inferred from its change

Bytes of one port are counted in several places that overlap: never add them. `phy_*` is the wire,
everything that crossed it; `ib_*` is the wire of an InfiniBand port but on Ethernet only the RDMA
of this function; `rdma_*` is RDMA as the driver counts it; `netdev_*` is what the kernel's stack
saw, without RDMA.
"""

from __future__ import annotations

from itertools import chain
from typing import Dict

from collectors.catalog.ethernet import cxi_metrics, netdev_metrics, phy_metrics, switch_metrics
from collectors.catalog.gpu import gpu_metrics
from collectors.catalog.metric import GAUGE, WRAP32, WRAP64, Metric, saturating
from collectors.catalog.probe import probe_metrics
from collectors.catalog.rdma import ib_metrics, rdma_metrics

__all__ = ["CATALOG", "GAUGE", "WRAP32", "WRAP64", "Metric", "saturating"]

CATALOG: Dict[str, Metric] = {
    metric.name: metric
    for metric in chain(
        netdev_metrics(),
        ib_metrics(),
        rdma_metrics(),
        phy_metrics(),
        cxi_metrics(),
        switch_metrics(),
        gpu_metrics(),
        probe_metrics(),
    )
}
"""Name -> metric."""
