"""What a GPU does, in a few words: how busy it is, its clock, and why the clock is lowered."""

from __future__ import annotations

import numpy as np

from fabmon.fabric.model import Port
from fabmon.fabric.snapshot import Snapshot

_REASONS = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal, software",
    0x40: "thermal, hardware",
    0x80: "power brake",
    0x100: "display clocks",
}
"""Bits of nvmlClocksEventReason* (NVML API reference, "Clocks event reasons")."""

_SLOWS = 0x8 | 0x20 | 0x40 | 0x80
"""Reasons that make one GPU slower than others of its job; a power cap is usual under load."""

_MHZ = 1e6


def activity(snapshot: Snapshot, gpu: Port) -> str:
    """`busy 98 %, 1980 of 1980 MHz, clock lowered: power cap`; empty where nothing is known."""
    busy, clock, most, reasons = (
        float(snapshot.column(name)[gpu.row])
        for name in (
            *("gpu_busy_percent", "gpu_sm_clock_hz"),
            *("gpu_max_sm_clock_hz", "gpu_clock_reasons"),
        )
    )
    parts = []
    if not np.isnan(busy):
        parts.append(f"busy {busy:.0f} %")
    if not np.isnan(clock):
        of = "" if np.isnan(most) else f" of {most / _MHZ:.0f}"
        parts.append(f"{clock / _MHZ:.0f}{of} MHz")
    if not np.isnan(reasons):
        bits = int(reasons)
        names = [name for bit, name in _REASONS.items() if bits & bit]
        if names:
            parts.append(f"clock lowered: {', '.join(names)}")
    return ", ".join(parts)


def is_slowed(snapshot: Snapshot, gpu: Port) -> bool:
    """Whether heat, a power brake or the hardware lowers the GPU's clock."""
    reasons = float(snapshot.column("gpu_clock_reasons")[gpu.row])
    return not np.isnan(reasons) and bool(int(reasons) & _SLOWS)
