"""Whether the host, not the network, is what limits a NIC: its PCIe."""

from __future__ import annotations

from fabmon.analysis.sight import Sight

_STALLED_PERCENT = 20.0
_STALLED_EVENTS = 0.5
_NEAR = 0.85
"""Share of what the PCIe link carries at which it is the limit."""
_CODING = 128 / 130
"""What the line code leaves of a lane's transfers from PCIe 3 on; half of one in five before."""
_OLD_CODING = 0.8
_PACKETS = 0.9
"""What transaction headers leave."""


def pcie_evidence(sight: Sight, row: int) -> list[tuple[str, float, str]]:
    """(name, value, unit) of all that says that the port's PCIe is the limit."""
    moment = sight.moment
    told: list[tuple[str, float, str]] = []
    for name in ("pci_stalled_write_percent", "pci_stalled_read_percent"):
        value = float(moment.column(name)[row])
        if value >= _STALLED_PERCENT:
            told.append((name, round(value, 1), "%"))
    for name in ("pci_stalled_write_events", "pci_stalled_read_events", "pci_buffer_overflows"):
        value = float(moment.column(name)[row])
        if value >= _STALLED_EVENTS:
            told.append((name, round(value, 1), "/s"))
    carries = pcie_bps(sight, row)
    line_rate = float(moment.line_rate_bps[row])
    if carries is not None and carries < line_rate:
        busiest = max(float(moment.column(way)[row]) for way in ("tx_bps", "rx_bps"))
        if busiest >= _NEAR * carries:
            told.append(("PCIe carries", round(carries / 1e9, 1), "Gb/s"))
    return told


def pcie_bps(sight: Sight, row: int) -> float | None:
    """What the port's PCIe link carries one way, payload; None when it is not known."""
    info = sight.structure.fabric.ports[row].info
    speed, lanes = info.get("pcie_speed_gtps"), info.get("pcie_width")
    if not isinstance(speed, (int, float)) or not isinstance(lanes, int) or not lanes:
        return None
    coding = _CODING if speed > 5 else _OLD_CODING
    return float(speed) * lanes * coding * _PACKETS * 1e9
