"""Numbers for a table: three significant digits, decimal units."""

from __future__ import annotations

_STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def bits(bps: float | None) -> str:
    """Bits per second, as `392 Gb/s`; a dot for what is absent."""
    if bps is None:
        return "·"
    for step, prefix in _STEPS:
        if abs(bps) >= step:
            return f"{_three(bps / step)} {prefix}b/s"
    return f"{_three(bps)} b/s" if bps else "0 b/s"


def percent(share: float | None) -> str:
    """A share of 0 to 1 as `98 %`; a dot for what is absent."""
    return "·" if share is None else f"{share * 100:.0f} %"


def _three(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
