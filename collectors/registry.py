"""Which sources exist. A name leads to `module:Class`; nothing is imported until it is chosen."""

from __future__ import annotations

import importlib
from typing import Dict, FrozenSet, List, Optional, Sequence, Tuple, Type

from collectors.deferred import Deferred
from collectors.hostfs import HostFS
from collectors.source import Source

SOURCES: Dict[str, str] = {
    "netdev": "collectors.sources.netdev:Netdev",
    "netdev_link": "collectors.sources.netdev:NetdevLink",
    "ib": "collectors.sources.ib:Traffic",
    "ib_errors": "collectors.sources.ib:Errors",
    "rdma": "collectors.sources.rdma:Rdma",
    "rdma_errors": "collectors.sources.rdma:RdmaErrors",
    "ethtool": "collectors.sources.ethtool:Ethtool",
    "cxi": "collectors.sources.cxi:Cxi",
    "cxi_errors": "collectors.sources.cxi:CxiErrors",
    "nvlink": "collectors.sources.nvlink:Nvlink",
    "nvlink_errors": "collectors.sources.nvlink_errors:NvlinkErrors",
    "pcie": "collectors.sources.pcie:Pcie",
    "xgmi": "collectors.sources.xgmi:XgmiLinks",
    "dcb": "collectors.sources.dcb:Dcb",
    "lldp": "collectors.sources.lldp:Lldp",
    "qps": "collectors.sources.qps:QueuePairs",
    "sonic": "collectors.sources.sonic:Sonic",
    "sonic_queues": "collectors.sources.sonic_queues:SonicQueues",
    "ib_fabric": "collectors.sources.ib_fabric:IbFabric",
    "routes": "collectors.sources.routes:Routes",
}
"""Name -> where its class is; the order is that of the blocks in a frame."""


ON_REQUEST: FrozenSet[str] = frozenset({"ib_fabric"})
"""Sources that are read only where they are asked for by name: they speak for other nodes too."""


_NVIDIA = ("proc/driver/nvidia", "dev/nvidiactl", "dev/dxg", "usr/lib/libnvidia-ml.so.1")
_INFINIBAND = ("sys/class/infiniband",)
_SONIC = ("etc/sonic", "var/run/redis", "run/redis")

NEEDS: Dict[str, Tuple[str, ...]] = {
    "ib": _INFINIBAND,
    "ib_errors": _INFINIBAND,
    "rdma": _INFINIBAND,
    "rdma_errors": _INFINIBAND,
    "qps": _INFINIBAND,
    "cxi": ("sys/class/cxi",),
    "cxi_errors": ("sys/class/cxi",),
    "nvlink": _NVIDIA,
    "nvlink_errors": _NVIDIA,
    "pcie": _NVIDIA,
    "xgmi": ("sys/module/amdgpu", "sys/bus/pci/drivers/amdgpu"),
    "sonic": _SONIC,
    "sonic_queues": _SONIC,
}
"""Paths without any of which a source has nothing to read: then it is not even imported."""


def make(name: str, host: HostFS) -> Source:
    """The source called `name`, of a host. Raises KeyError when there is none."""
    if name in NEEDS:
        return Deferred(host, name, NEEDS[name], lambda host: load(name)(host))
    return load(name)(host)


def choose(wanted: Optional[Sequence[str]]) -> List[str]:
    """The names to read, in the order of the blocks: the usual ones for None.

    `+name` and `-name` change the usual ones; names alone replace them. Raises KeyError with what
    there is not.
    """
    asked = [] if wanted is None else list(wanted)
    unknown = [name for name in asked if name.lstrip("+-") not in SOURCES]
    if unknown:
        raise KeyError(", ".join(unknown))
    alone = {name for name in asked if name[0] not in "+-"}
    chosen = alone if alone or wanted == [] else set(SOURCES) - ON_REQUEST
    chosen |= {name[1:] for name in asked if name[0] == "+"}
    chosen -= {name[1:] for name in asked if name[0] == "-"}
    return [name for name in SOURCES if name in chosen]


def load(name: str) -> Type[Source]:
    """Import the source called `name`. Raises KeyError when there is none."""
    module, _, attribute = SOURCES[name].partition(":")
    source: Type[Source] = getattr(importlib.import_module(module), attribute)
    return source
