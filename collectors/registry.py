"""The sources that a probe can read, by name. Plain data: nothing is imported until it is chosen.

One entry is one line: where the class is, the paths that show that the machine has such hardware,
and whether the source is read only where it is asked for by name.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple


class SourceEntry(NamedTuple):
    """Where a source is and when it is worth importing.

    `factory` is `module:Class`. `needs` are paths below the root without any of which the source
    has nothing to read and is not even imported; empty means that it is always imported.
    `on_request` sources are read only where they are named, since they report about other nodes or
    read files of users.
    """

    factory: str
    needs: Tuple[str, ...] = ()
    on_request: bool = False


_INFINIBAND = ("sys/class/infiniband",)
_CXI = ("sys/class/cxi",)
_NVIDIA = ("proc/driver/nvidia", "dev/nvidiactl", "dev/dxg", "usr/lib/libnvidia-ml.so.1")
_AMDGPU = ("sys/module/amdgpu", "sys/bus/pci/drivers/amdgpu")
_KERNEL_LOG = ("dev/kmsg", "proc/kmsg")
_SONIC = ("etc/sonic", "var/run/redis", "run/redis")

SOURCES: Dict[str, SourceEntry] = {
    "netdev": SourceEntry("collectors.sources.netdev:Netdev"),
    "netdev_link": SourceEntry("collectors.sources.netdev:NetdevLink"),
    "ib": SourceEntry("collectors.sources.ib:Traffic", _INFINIBAND),
    "ib_errors": SourceEntry("collectors.sources.ib:Errors", _INFINIBAND),
    "rdma": SourceEntry("collectors.sources.rdma:Rdma", _INFINIBAND),
    "rdma_errors": SourceEntry("collectors.sources.rdma:RdmaErrors", _INFINIBAND),
    "ethtool": SourceEntry("collectors.sources.ethtool:Ethtool"),
    "cxi": SourceEntry("collectors.sources.cxi:Cxi", _CXI),
    "cxi_errors": SourceEntry("collectors.sources.cxi:CxiErrors", _CXI),
    "nvlink": SourceEntry("collectors.sources.nvlink:Nvlink", _NVIDIA),
    "nvlink_errors": SourceEntry("collectors.sources.nvlink:NvlinkErrors", _NVIDIA),
    "nvlink_fabric": SourceEntry("collectors.sources.nvlink_fabric:NvlinkFabric", _NVIDIA),
    "pcie": SourceEntry("collectors.sources.pcie:Pcie", _NVIDIA),
    "gpu_activity": SourceEntry("collectors.sources.gpu_activity:GpuActivity", _NVIDIA),
    "xgmi": SourceEntry("collectors.sources.xgmi:XgmiLinks", _AMDGPU),
    "dcb": SourceEntry("collectors.sources.dcb:Dcb"),
    "kernel_log": SourceEntry("collectors.sources.kernel_log:KernelLog", _KERNEL_LOG),
    "lldp": SourceEntry("collectors.sources.lldp:Lldp"),
    "qps": SourceEntry("collectors.sources.qps:QueuePairSource", _INFINIBAND),
    "sonic": SourceEntry("collectors.sources.sonic:Sonic", _SONIC),
    "sonic_queues": SourceEntry("collectors.sources.sonic_queues:SonicQueues", _SONIC),
    "ib_fabric": SourceEntry("collectors.sources.ib_fabric:IbFabric", on_request=True),
    "nccl_inspector": SourceEntry(
        "collectors.sources.nccl_inspector:NcclInspector", on_request=True
    ),
    "routes": SourceEntry("collectors.sources.routes:Routes"),
}
"""Name -> entry; the order is that of the blocks in a frame."""


def choose_sources(wanted: Optional[Sequence[str]]) -> List[str]:
    """The names of the sources to read, in the order of the blocks; the default set for None.

    `+name` and `-name` change the default set; plain names replace it. Raises KeyError with the
    names that do not exist.
    """
    asked = [] if wanted is None else list(wanted)
    unknown = [name for name in asked if name.lstrip("+-") not in SOURCES]
    if unknown:
        raise KeyError(", ".join(unknown))
    chosen = {name for name in asked if name[0] not in "+-"}
    if not chosen and wanted != []:
        chosen = {name for name, entry in SOURCES.items() if not entry.on_request}
    chosen |= {name[1:] for name in asked if name[0] == "+"}
    chosen -= {name[1:] for name in asked if name[0] == "-"}
    return [name for name in SOURCES if name in chosen]
