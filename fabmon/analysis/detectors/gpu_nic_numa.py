"""GPUs whose nearest NIC is attached to the other CPU.

Every byte between such a GPU and the fabric crosses the link between the CPUs (SYS in the terms of
`nvidia-smi topo -m`), which all of them share, and GPUDirect RDMA is often refused there.
"""

from __future__ import annotations

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence
from fabmon.fabric.model import GPU, RAIL, Node, Port
from fabmon.fabric.pcie import NEAREST_FIRST

CAUSE = Cause(
    name="gpu_nic_numa",
    title="GPU far from its NIC",
    meaning="the nearest NIC of a GPU is attached to the other CPU of the host",
    severity=WARNING,
    rule="A GPU has no rail on its own NUMA node: the nearest one is behind the other CPU (SYS).",
    inputs="GPU topology of the host (NVML)",
    not_observable="What the job sends from these GPUs",
    picture="numa_nodes",
    advice=(
        "Move a NIC to the other CPU's slots, or give these GPUs to jobs inside the node; "
        "see NCCL_NET_GDR_LEVEL and NCCL_CROSS_NIC."
    ),
)

_FAR = NEAREST_FIRST[-1]


def distant_gpus(inputs: DetectorInput) -> tuple[Condition, ...]:
    """One condition for each node that has such GPUs, computed once for a fabric."""
    return inputs.structure.of_nodes(_of_node, _conditions)


def gpus_without_near_nic(node: Node) -> list[Port]:
    """The GPUs of a node that have no rail on their own NUMA node."""
    rails = {port.name for port in node.ports if port.role == RAIL}
    return [port for port in node.ports if port.role == GPU and _nearest(port, rails) == _FAR]


def _nearest(gpu: Port, rails: set[str]) -> str | None:
    """The connection between a GPU and the nearest of the rails; None when nothing is known."""
    known = gpu.info.get("affinity")
    if not isinstance(known, dict):
        return None
    between = [kind for name, kind in known.items() if name in rails and kind in NEAREST_FIRST]
    return min(between, key=NEAREST_FIRST.index, default=None)


def _conditions(of_nodes: list[Condition | None]) -> tuple[Condition, ...]:
    return tuple(each for each in of_nodes if each is not None)


def _of_node(node: Node) -> Condition | None:
    far = gpus_without_near_nic(node)
    if not far:
        return None
    count = sum(port.role == GPU for port in node.ports)
    names = ", ".join(port.label for port in far)
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=node.name,
        rows=tuple(port.row for port in far),
        text=f"{len(far)} of {count} GPUs ({names}) {'reaches' if len(far) == 1 else 'reach'} the"
        " nearest NIC across the link between the CPUs",
        evidence=(
            Evidence("gpus_far", len(far), "GPUs"),
            Evidence("gpus", count, "GPUs"),
            Evidence("nearest", f"{_FAR}: another NUMA node"),
        ),
        advice=CAUSE.advice,
        confidence=1.0,
    )
