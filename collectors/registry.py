"""Which sources exist. A name leads to `module:Class`; nothing is imported until it is chosen."""

from __future__ import annotations

import importlib
from typing import Dict, Type

from collectors.source import Source

SOURCES: Dict[str, str] = {
    "netdev": "collectors.sources.netdev:Netdev",
    "netdev_link": "collectors.sources.netdev:NetdevLink",
    "ib": "collectors.sources.ib:Traffic",
    "ib_errors": "collectors.sources.ib:Errors",
    "rdma": "collectors.sources.rdma:Rdma",
    "rdma_errors": "collectors.sources.rdma:RdmaErrors",
    "ethtool": "collectors.sources.ethtool:Ethtool",
    "routes": "collectors.sources.routes:Routes",
}
"""Name -> where its class is; the order is that of the blocks in a frame."""


def load(name: str) -> Type[Source]:
    """Import the source called `name`. Raises KeyError when there is none."""
    module, _, attribute = SOURCES[name].partition(":")
    source: Type[Source] = getattr(importlib.import_module(module), attribute)
    return source
