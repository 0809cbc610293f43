"""What a NIC's PCIe link carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CODING = 128 / 130
"""What the line code leaves of a lane's transfers from PCIe 3 on; eight of ten before."""
_OLD_CODING = 0.8
_PACKETS = 0.9
"""What transaction headers leave."""


def pcie_bps(info: Mapping[str, Any]) -> float:
    """Payload in bits/s one way, of a port's facts; NaN when they do not say."""
    speed, lanes = info.get("pcie_speed_gtps"), info.get("pcie_width")
    if not isinstance(speed, (int, float)) or not isinstance(lanes, int) or not lanes:
        return float("nan")
    coding = _CODING if speed > 5 else _OLD_CODING
    return float(speed) * lanes * coding * _PACKETS * 1e9
