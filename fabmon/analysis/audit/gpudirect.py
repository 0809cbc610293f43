"""Checks of the path between GPUs, NICs and processes inside a node.

GPUDirect RDMA needs a kernel module (nvidia_peermem) or dma-buf (open GPU driver, Linux 5.12 on),
and a path on which PCIe switches pass packets between GPU and NIC directly: Access Control Services
(ACS) and an IOMMU that translates send them through the CPU's root complex (NVIDIA, GPUDirect RDMA
documentation; NCCL user guide, "Troubleshooting", "PCI access control services").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fabmon.analysis.audit.survey import FIX, NOTE, Problem, Survey
from fabmon.fabric.model import GPU, RAIL, Node, Port
from fabmon.fabric.pcie import NEAREST_FIRST
from fabmon.fabric.wording import name_list

_SAME_SWITCH = ("PIX", "PXB")
_TRANSLATED = ("DMA", "DMA-FQ")
"""Types of an IOMMU group in which addresses are translated; `identity` is pass-through."""

_MOST_NAMED = 4


def gpudirect_missing(survey: Survey) -> Iterator[Problem]:
    """Nodes with NVIDIA GPUs and RDMA ports where no GPUDirect RDMA is possible."""
    for node, gpus, _ in _nodes(survey):
        if any(gpu.info.get("gpudirect") == "none" for gpu in gpus):
            yield Problem(
                check="gpudirect",
                severity=FIX,
                ports=(node.name,),
                text="no GPUDirect RDMA: nvidia_peermem is not loaded, and the driver or the kernel"
                " has no dma-buf: data between GPUs and NICs is copied through host memory",
                advice="modprobe nvidia_peermem, or use the open GPU kernel modules.",
            )


def dma_translated(survey: Survey) -> Iterator[Problem]:
    """Nodes whose IOMMU translates the addresses of GPUs or RDMA ports."""
    for _, gpus, nics in _nodes(survey):
        yield from _notes(
            "iommu",
            [port for port in (*gpus, *nics) if port.info.get("iommu") in _TRANSLATED],
            text="the IOMMU translates DMA addresses: traffic between GPU and NIC may go"
            " through the CPU's root complex",
            advice="Boot bare-metal x86 nodes with iommu=pt, or switch the IOMMU off.",
        )


def acs_on(survey: Survey) -> Iterator[Problem]:
    """GPUs and NICs below one PCIe switch that are in different IOMMU groups: ACS is on.

    The kernel puts functions into one group where nothing isolates them. Without an IOMMU there are
    no groups, and ACS can be read by root only.
    """
    for _, gpus, nics in _nodes(survey):
        apart = []
        for gpu in gpus:
            group = gpu.info.get("iommu_group")
            near = [nic for nic in nics if _between(gpu, nic) in _SAME_SWITCH]
            if any(group and nic.info.get("iommu_group", group) != group for nic in near):
                apart.append(gpu)
        yield from _notes(
            "acs",
            apart,
            text="ACS is on at the PCIe switch between this GPU and its NIC (they are in"
            " different IOMMU groups): their traffic goes through the CPU's root complex",
            advice="On bare metal switch ACS off on the PCIe bridges (setpci, or the BIOS).",
        )


def gpus_without_own_nic(survey: Survey) -> Iterator[Problem]:
    """Nodes some of whose GPUs have a NIC below their PCIe switch while others have none."""
    for _, gpus, nics in _nodes(survey):
        nearest = {}
        for gpu in gpus:
            kinds = [kind for nic in nics if (kind := _between(gpu, nic)) in NEAREST_FIRST]
            if kinds:
                nearest[gpu.name] = min(kinds, key=NEAREST_FIRST.index)
        far = [gpu for gpu in gpus if nearest.get(gpu.name) in ("PHB", "NODE")]
        close = sum(kind in _SAME_SWITCH for kind in nearest.values())
        if close:
            kinds_text = "/".join(sorted({nearest[gpu.name] for gpu in far}))
            yield from _notes(
                "gpu_without_nic",
                far,
                text=f"no NIC below the PCIe switch of this GPU ({kinds_text}), {close} of"
                f" {len(gpus)} GPUs of the node have one: they share the other NICs",
                advice="Expect less bandwidth for these GPUs; see nvidia-smi topo -m and the"
                " rails that are missing.",
            )


def processes_far_from_nic(survey: Survey) -> Iterator[Problem]:
    """Processes that are bound to the CPUs of another NUMA node than the NIC that they use.

    A process that may run on several nodes is not judged.
    """
    for node in survey.snapshot.fabric.nodes:
        hello = survey.hellos.get(node.name)
        numa_of = {port.name: port.info.get("numa_node") for port in node.ports}
        far: dict[str, list[str]] = defaultdict(list)
        for item in (item for block in (hello.blocks if hello else ()) for item in block.objects):
            if item.kind != "queue_pairs":
                continue
            name, processes = item.info.get("port"), item.info.get("processes")
            there = numa_of.get(name) if isinstance(name, str) else None
            for process in processes if isinstance(processes, (list, tuple)) else ():
                here = process.get("numa_node") if isinstance(process, dict) else None
                if isinstance(here, int) and isinstance(there, int) and here != there:
                    owner = f"{process.get('comm', '')} {process.get('pid', '')}".strip()
                    far[f"{node.name}/{name}"].append(f"{owner} (node {here})")
        for port, owners in far.items():
            yield Problem(
                check="process_numa",
                severity=FIX,
                ports=(port,),
                text=f"used by {name_list(owners, _MOST_NAMED)}, the NIC is on NUMA node"
                f" {numa_of[port.partition('/')[2]]}",
                advice="Bind ranks to the NUMA node of their GPU and NIC (numactl, Slurm"
                " --cpu-bind, the MPI's --bind-to numa).",
            )


def _notes(check: str, ports: list[Port], text: str, advice: str) -> Iterator[Problem]:
    """The problem of these ports, one that does not have to be fixed before a run; none without
    ports."""
    if ports:
        yield Problem(
            check=check,
            severity=NOTE,
            ports=tuple(port.id for port in ports),
            text=text,
            advice=advice,
        )


def _nodes(survey: Survey) -> Iterator[tuple[Node, list[Port], list[Port]]]:
    """Each node that has GPUs and RDMA ports, with these."""
    for node in survey.snapshot.fabric.nodes:
        gpus = [port for port in node.ports if port.role == GPU]
        nics = [port for port in node.ports if port.role == RAIL and port.info.get("rdma")]
        if gpus and nics:
            yield node, gpus, nics


def _between(gpu: Port, nic: Port) -> str | None:
    """The relation of a GPU and a NIC (PIX ... SYS); None when it is not known."""
    known = gpu.info.get("affinity")
    kind = known.get(nic.name) if isinstance(known, dict) else None
    return kind if isinstance(kind, str) else None
