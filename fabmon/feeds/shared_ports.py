"""One port for what an agent and an exporter's page call by different names.

A probe knows which interface and which RDMA device are one port; a page of node_exporter does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from collectors.wire import BlockLayout, Object
from fabmon.fabric.port_source import is_of_page


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
