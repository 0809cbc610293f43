"""Which sources exist. A name leads to `module:Class`; nothing is imported until it is chosen."""

from __future__ import annotations

import importlib
from typing import Callable, Dict, FrozenSet, List, Optional, Sequence, Tuple, Type

from collectors.hostfs import HostFS
from collectors.source import Faults, NoData, Source
from collectors.wire import Object

# A source that is not imported until there is something for it to read.
#
# On a node the probe runs from memory and compiles every module that it imports: 5 ms each. What
# most machines have not (a GPU, a Slingshot NIC, SONiC's databases) is looked for first.


class DeferredSource(Source):
    """Stands for the source that `make` makes, until one of the paths is there."""

    def __init__(
        self, host: HostFS, name: str, paths: Sequence[str], make: Callable[[HostFS], Source]
    ) -> None:
        super().__init__(host)
        self.name = name
        self._paths = paths
        self._make = make
        self._source: Optional[Source] = None

    def discover(self) -> List[Object]:
        """What the source finds. Raises NoData while none of the paths is there."""
        if self._source is None:
            if not self._there():
                raise NoData(f"no /{' nor /'.join(self._paths)}")
            self._source = self._make(self.host)
        objects = self._source.discover()
        self.every = self._source.every
        self.deadline_s = self._source.deadline_s
        self.min_period_s = self._source.min_period_s
        return objects

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The source's values."""
        if self._source is None:
            raise NoData("nothing was discovered")
        values = self._source.read(faults)
        self.values_ns = self._source.values_ns
        return values

    def signature(self) -> object:
        """Changes when a path comes or goes, then as the source's does."""
        return self._there() if self._source is None else self._source.signature()

    def close(self) -> None:
        """Give back what the source holds."""
        if self._source is not None:
            self._source.close()

    def _there(self) -> bool:
        return any(self.host.exists(path) for path in self._paths)


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
    "nvlink_errors": "collectors.sources.nvlink:NvlinkErrors",
    "pcie": "collectors.sources.pcie:Pcie",
    "xgmi": "collectors.sources.xgmi:XgmiLinks",
    "dcb": "collectors.sources.dcb:Dcb",
    "lldp": "collectors.sources.lldp:Lldp",
    "qps": "collectors.sources.qps:QueuePairs",
    "sonic": "collectors.sources.sonic:Sonic",
    "sonic_queues": "collectors.sources.sonic:SonicQueues",
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


def make_source(name: str, host: HostFS) -> Source:
    """The source called `name`, of a host. Raises KeyError when there is none."""
    if name in NEEDS:
        return DeferredSource(host, name, NEEDS[name], lambda host: load_source(name)(host))
    return load_source(name)(host)


def choose_sources(wanted: Optional[Sequence[str]]) -> List[str]:
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


def load_source(name: str) -> Type[Source]:
    """Import the source called `name`. Raises KeyError when there is none."""
    module, _, attribute = SOURCES[name].partition(":")
    source: Type[Source] = getattr(importlib.import_module(module), attribute)
    return source
