"""How a receiver stops a sender, in words: pause on Ethernet, credits on InfiniBand.

InfiniBand has neither PFC nor 802.3x: a port sends only for as long as the other end grants it
credits (InfiniBand Architecture Specification, volume 1, "Flow control").
"""

from __future__ import annotations

from collections.abc import Iterable

from fabmon.analysis.finding import Evidence
from fabmon.fabric.model import Port

PAUSE, CREDITS = "pause", "no credits"

TIME_PAUSED, TIME_WITHOUT_CREDITS = "time paused", "time without credits"
"""Names of the evidence of waiting; the second one also selects the title of a finding."""


_WITH_CREDITS = "infiniband"


def uses_credits(port: Port) -> bool:
    """Whether a port waits for credits, and is never paused."""
    return port.kind == _WITH_CREDITS


def flow_control_of(ports: Iterable[Port]) -> str:
    """`pause` or `no credits`; `pause or no credits` of ports of both kinds."""
    kinds = {port.kind for port in ports}
    if _WITH_CREDITS not in kinds:
        return PAUSE
    return CREDITS if len(kinds) == 1 else f"{PAUSE} or {CREDITS}"


def time_waiting(port: Port, share: float) -> Evidence:
    """Evidence: the share of time, 0 to 1, in which a port may not send."""
    name = TIME_WITHOUT_CREDITS if uses_credits(port) else TIME_PAUSED
    return Evidence(name, round(share * 100, 1), "%")
