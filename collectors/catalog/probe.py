"""What the probe counts of itself."""

from __future__ import annotations

from typing import Iterator

from collectors.catalog.metric import GAUGE, WRAP64, Metric

_DOC = "docs/wire.md"


def probe_metrics() -> Iterator[Metric]:
    """The `probe_*` rows."""
    for name, unit, kind, meaning in (
        ("probe_cpu_us", "us", WRAP64, "CPU time the probe has used on this node"),
        ("probe_read_us", "us", GAUGE, "how long this source's last read took"),
        ("probe_rss_bytes", "bytes", GAUGE, "memory the probe holds"),
        ("probe_late_us", "us", GAUGE, "how late the last frame started"),
    ):
        yield Metric(name, unit, kind, "", "probe", meaning, _DOC)
