"""What the network did at the time of which a witness speaks: the job's ports, and findings."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Sequence

import msgspec

from fabmon.fabric.wording import plural, rounded_percent

_IDLE_UTIL = 0.01
"""Keep-alives and management traffic of a NIC that carries no collective are below this."""
_HOT_UTIL = 0.8
"""The share of line rate that collectives reach on a healthy path."""
_PAUSED = 0.05


class Extent(msgspec.Struct, frozen=True):
    """The mean of a time, and the highest value of a tick in it; null where unknown."""

    mean: float | None
    highest: float | None


class PortLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A port in a time. `tx_util` and `rx_util` are shares of line rate, `paused` and `pausing` of
    the time in which it was paused by its peer, or paused its peer; `errors` of the link and
    `drops` are per second. `down_s` is the time without a link."""

    port: str
    name: str
    down_s: float
    tx_util: Extent
    rx_util: Extent
    paused: Extent
    pausing: Extent
    errors: Extent
    drops: Extent

    @property
    def util(self) -> float | None:
        """The mean of the busier direction."""
        return max(
            (each for each in (self.tx_util.mean, self.rx_util.mean) if each is not None),
            default=None,
        )

    @property
    def pause(self) -> float:
        """The longer of both kinds of pauses, 0 where unknown."""
        return max(self.paused.mean or 0.0, self.pausing.mean or 0.0)


class FindingAtTime(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of a recording; `is_on_path`: it has a port or a host that is asked about. `until`
    is null where it was still open at the end of the time."""

    text: str
    subject: str
    severity: str
    since: datetime.datetime
    until: datetime.datetime | None
    is_on_path: bool


class WireState(enum.Enum):
    """What some ports did, the state that explains most first."""

    DOWN = "down"
    PAUSED = "paused"
    HOT = "hot"
    ACTIVE = "active"
    IDLE = "idle"
    UNKNOWN = "unknown"


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """What a recording shows of a job's ports at a time. `clock` says how the times were aligned,
    and how sure that is. `start` and `end` are null where the recording does not have that time.
    `not_recorded` are sentences on what it lacks. `state` is that of `port_count` ports, of which
    `ports` are those of the failures, or those that make the state, the most extreme first."""

    clock: str
    start: datetime.datetime | None = None
    end: datetime.datetime | None = None
    not_recorded: list[str] = []
    state: WireState = WireState.UNKNOWN
    port_count: int = 0
    ports: list[PortLoad] = []
    findings: list[FindingAtTime] = []


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
    highest = [max(each.tx_util.highest or 0.0, each.rx_util.highest or 0.0) for each in known]
    active = [each for each, util in zip(known, highest, strict=True) if util >= _IDLE_UTIL]
    if active:
        return WireState.ACTIVE, sorted(active, key=lambda each: -(each.util or 0.0))
    return WireState.IDLE, known


def load_clause(loads: Sequence[PortLoad]) -> str:
    """What ports that are in one state did, as a clause."""
    state, making = wire_state(loads)
    worst = making[0] if making else None
    more = f" (and {len(making) - 1} more)" if len(making) > 1 else ""
    if state is WireState.IDLE or worst is None:
        return f"the wire is idle ({plural(len(making), 'port')} of the job below 1 % of line rate)"
    if state is WireState.DOWN:
        return f"{worst.name} was down for {worst.down_s:.0f} s{more}"
    if state is WireState.PAUSED:
        if (worst.paused.mean or 0.0) >= (worst.pausing.mean or 0.0):
            return f"{worst.name} was paused {rounded_percent(worst.paused.mean)} of the time{more}"
        return (
            f"{worst.name} paused its peer {rounded_percent(worst.pausing.mean)} of the time{more}"
        )
    word = "is hot at" if state is WireState.HOT else "carries"
    return f"{worst.name} {word} {rounded_percent(worst.util)} of line rate{more}"
