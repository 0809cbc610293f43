"""How well a source knows when its counters were read: of two that report a port, one is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_AGENTS = ("", "fabmon")


def is_of_page(info: Mapping[str, Any]) -> bool:
    """Whether an object with these facts is from the page of an exporter other than an agent."""
    return str(info.get("exporter") or "") not in _AGENTS


def clock_rank(info: Mapping[str, Any], every: int) -> int:
    """Rank of the clock of an object's values, the best is 0: probes and agents date every read;
    for a page the time of the scrape stands; among equals the one read more often is better."""
    return every + (1 << 20 if is_of_page(info) else 0)
