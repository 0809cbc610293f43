"""Every metric once: name, unit, kind, direction, topic, meaning, and where it is documented.

The screen, the export and the recording use these names; drivers' own names stay inside the source
that reads them. Values on the wire are integers in the unit given here. Families of metrics share a
module; adding a metric is one row in it.

The kind says what it means when a value is smaller than the previous one:

    wrap64      a reset (a 64-bit byte counter at 800 Gb/s needs years to wrap)
    wrap32      a wrap, if the step is physically possible, else a reset
    saturating  sticks at 2**bits - 1; there the true value is unknown, not unchanged
    gauge       a level; its change has no meaning

Bytes of one port are counted in several places that overlap: never add them. `phy_*` is all traffic
on the wire; `ib_*` is the wire of an InfiniBand port but on Ethernet only the RDMA of this
function; `rdma_*` is RDMA as the driver counts it; `netdev_*` is the traffic through the kernel's
network stack, without RDMA.
"""

from __future__ import annotations

from typing import Dict, Tuple

from collectors.catalog.ethernet import netdev_metrics, port_metrics
from collectors.catalog.gpu import gpu_metrics
from collectors.catalog.metric import GAUGE, WRAP32, WRAP64, Metric, rows
from collectors.catalog.rdma import ib_metrics, rdma_metrics

__all__ = ["CATALOG", "GAUGE", "ROWS", "WRAP32", "WRAP64", "Metric", "require"]


_PROBE = """
probe_cpu_us us wrap64 - probe: CPU time the probe has used on this node
probe_read_us us gauge - probe: how long this source's last read took
probe_rss_bytes bytes gauge - probe: memory the probe holds
probe_late_us us gauge - probe: how late the last frame started
"""
_LOG = """
kernel_log_messages events wrap64 - probe: messages of the kernel about NICs, GPUs and PCIe
kernel_log_lost events wrap64 - probe: messages of the kernel that were lost before they were read
"""
_INSPECTOR = """
nccl_calls events wrap64 - probe: calls of a collective, of all ranks on the node
nccl_time_us us wrap64 - probe: time that these calls took
nccl_bus_bytes bytes wrap64 - probe: that time multiplied by the bus bandwidth
nccl_records_lost events wrap64 - probe: records that NCCL Inspector lost, as it says
nccl_records_unread events wrap64 - probe: lines and files of NCCL Inspector that are no records
nccl_bytes_skipped bytes wrap64 - probe: of files that grow faster than they are read
"""
_SUMMED = """
port_errors events wrap64 - error: errors of the link, all kinds together
port_drops events wrap64 - drop: packets dropped, all kinds together
"""

ROWS: Tuple[Metric, ...] = (
    *netdev_metrics(),
    *ib_metrics(),
    *rdma_metrics(),
    *port_metrics(),
    *gpu_metrics(),
    *rows(_PROBE, "docs/wire.md"),
    *rows(_LOG, "collectors/sources/kernel_log.py"),
    *rows(_INSPECTOR, "collectors/sources/nccl_inspector.py"),
    # Sums over several counters of a port, made by recording rules.
    *rows(_SUMMED, "config/prometheus/fabmon.rules.yml"),
)
"""All metrics, each name once."""

CATALOG: Dict[str, Metric] = {metric.name: metric for metric in ROWS}
"""Name -> metric."""


def require(*names: str) -> None:
    """Check that all names are in the catalog. Raises KeyError.

    Called at import time by modules that name metrics, so that a misspelt name is refused there.
    """
    unknown = [name for name in names if name not in CATALOG]
    if unknown:
        raise KeyError(f"not in the catalog: {', '.join(unknown)}")
