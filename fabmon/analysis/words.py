"""Numbers in a finding's sentence."""

from __future__ import annotations

import numpy as np


def percent(share: float | np.floating) -> str:
    """`0.472` -> `47 %`; below one in a hundred with a decimal."""
    value = float(share) * 100
    return f"{value:.1f} %" if 0 < value < 0.95 else f"{value:.0f} %"


def gbps(bps: float) -> str:
    """`188 Gb/s`, or `750 Mb/s` below one."""
    return f"{bps / 1e9:.3g} Gb/s" if bps >= 1e9 else f"{bps / 1e6:.3g} Mb/s"


def counted(number: int, what: str) -> str:
    """`1 port`, `2 ports`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
