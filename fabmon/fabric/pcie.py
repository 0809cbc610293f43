"""What a PCIe link carries, from its speed and the number of its lanes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NEAREST_FIRST = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Connections of a GPU and a NIC, as NCCL and `nvidia-smi topo` name them."""

_GEN_2_GTPS, _GEN_5_GTPS = 5.0, 32.0
"""Greatest speeds of PCIe 2 and PCIe 5, GT/s a lane."""

_GEN_2_CODING, _GEN_5_CODING, _FLIT = 0.8, 128 / 130, 242 / 256
"""Share of a lane's transfers that is left: by 8b/10b up to PCIe 2, by 128b/130b up to PCIe 5, and
from PCIe 6 on in flits of 256 bytes, of which 6 correct errors and 8 are a checksum (PCI Express
Base Specification 6.0, section 4.2.3)."""

PCIE_PAYLOAD = 0.9
"""Share of the bits, 0 to 1, that transaction headers leave for payload."""


def pcie_link_bps(speed_gtps: float, lanes: int) -> float:
    """What a PCIe link carries one way, headers included, bits/s."""
    if speed_gtps > _GEN_5_GTPS:
        coding = _FLIT
    else:
        coding = _GEN_5_CODING if speed_gtps > _GEN_2_GTPS else _GEN_2_CODING
    return speed_gtps * lanes * coding * 1e9


def pcie_payload_bps(info: Mapping[str, Any], is_gpu: bool = False) -> float:
    """The payload that a device's PCIe link carries one way, bits/s; NaN where it is not known.

    `info` are the facts of its port. A GPU lowers its link's speed while it is idle: its greatest
    speed counts.
    """
    speed = info.get("pcie_max_speed_gtps" if is_gpu else "pcie_speed_gtps")
    lanes = info.get("pcie_width")
    if not isinstance(speed, (int, float)) or not isinstance(lanes, int) or not lanes:
        return float("nan")
    return pcie_link_bps(float(speed), lanes) * PCIE_PAYLOAD
