"""What the NICs of a job did at the time of an answer: idle, paused, hot, down."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

_IDLE_UTIL = 0.01
"""Keep-alives and management traffic of a NIC that carries no collective are below this."""
_HOT_UTIL = 0.8
"""The share of line rate that collectives reach on a healthy path."""
_PAUSED = 0.05


class PortLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A port in the seconds before an answer: means, as shares of line rate, and of time in which
    it was paused by its peer (`paused`) or paused its peer (`pausing`); None where unknown.

    `highest_util` is the highest of a tick and a direction, `down_s` the time without a link.
    """

    port: str
    name: str
    node: str
    tx_util: float | None
    rx_util: float | None
    highest_util: float | None
    paused: float | None
    pausing: float | None
    down_s: float

    @property
    def util(self) -> float | None:
        """The mean of the busier direction."""
        return max(
            (each for each in (self.tx_util, self.rx_util) if each is not None), default=None
        )

    @property
    def pause(self) -> float:
        """The longer of both kinds of pauses, 0 where unknown."""
        return max(self.paused or 0.0, self.pausing or 0.0)


class WireState(enum.Enum):
    """What some ports did, the state that explains most first."""

    DOWN = "down"
    PAUSED = "paused"
    HOT = "hot"
    ACTIVE = "active"
    IDLE = "idle"
    UNKNOWN = "unknown"


def wire_state(loads: Sequence[PortLoad]) -> tuple[WireState, list[PortLoad]]:
    """The state of a job's ports, and the ports that make it, the most extreme first.

    Idle are ports of which every tick is below 1 % of line rate; unknown are those without a rate.
    """
    down = [each for each in loads if each.down_s > 0]
    if down:
        return WireState.DOWN, sorted(down, key=lambda each: -each.down_s)
    paused = [each for each in loads if each.pause >= _PAUSED]
    if paused:
        return WireState.PAUSED, sorted(paused, key=lambda each: -each.pause)
    known = [each for each in loads if each.util is not None]
    hot = [each for each in known if (each.util or 0.0) >= _HOT_UTIL]
    if hot:
        return WireState.HOT, sorted(hot, key=lambda each: -(each.util or 0.0))
    if not known:
        return WireState.UNKNOWN, []
    active = [each for each in known if (each.highest_util or 0.0) >= _IDLE_UTIL]
    if active:
        return WireState.ACTIVE, sorted(active, key=lambda each: -(each.util or 0.0))
    return WireState.IDLE, known
