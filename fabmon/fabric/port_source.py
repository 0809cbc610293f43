"""Two sources of one port: which one is used, and one name where they call it by different ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collectors.wire import BlockLayout, Object

_AGENTS = ("", "fabmon")


def is_of_page(info: Mapping[str, Any]) -> bool:
    """Whether an object with these facts is from the page of an exporter other than an agent."""
    return str(info.get("exporter") or "") not in _AGENTS


def clock_rank(info: Mapping[str, Any], every: int) -> int:
    """Rank of the clock of an object's values, the best is 0: probes and agents date every read;
    for a page the time of the scrape stands; among equals the one read more often is better."""
    return every + (1 << 20 if is_of_page(info) else 0)


def with_shared_ports(layouts: Sequence[BlockLayout]) -> list[BlockLayout]:
    """The blocks of a node; objects of pages belong to the ports that the agent's blocks name.

    An interface or a device that an agent reports of one port only is that port.
    """
    known: dict[tuple[str | None, str], set[str]] = {}
    for layout in layouts:
        for item in layout.objects:
            if item.port is not None and not is_of_page(item.info):
                for name in (item.port, item.info.get("netdev"), item.info.get("rdma")):
                    if isinstance(name, str) and name:
                        known.setdefault((item.node, name), set()).add(item.port)
    if not known:
        return list(layouts)
    return [
        BlockLayout(layout.source, layout.every, [_renamed(item, known) for item in layout.objects])
        for layout in layouts
    ]


def _renamed(item: Object, known: dict[tuple[str | None, str], set[str]]) -> Object:
    if item.port is None or not is_of_page(item.info):
        return item
    ports = known.get((item.node, item.port), set())
    return item._replace(port=min(ports)) if len(ports) == 1 else item
