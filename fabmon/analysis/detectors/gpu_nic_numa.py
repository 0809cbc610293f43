"""GPUs whose nearest NIC is behind the other CPU.

Every byte between such a GPU and the fabric crosses the link between the CPUs (SYS in the words of
`nvidia-smi topo -m`), which all of them share, and GPUDirect RDMA is often refused there.
"""

from __future__ import annotations

from collections.abc import Iterator

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence
from fabmon.fabric.model import GPU, RAIL, Fabric, Node, Port

CAUSE = Cause(
    name="gpu_nic_numa",
    title="GPU far from its NIC",
    severity=WARNING,
    picture="numa_nodes",
)


_FAR = "SYS"
_NEAREST_FIRST = ("PIX", "PXB", "PHB", "NODE", _FAR)


class GpuNicNuma:
    """The conditions of a fabric are worked out once, when it changes: they do not tick."""

    def __init__(self) -> None:
        self._fabric: Fabric | None = None
        self._conditions: tuple[Condition, ...] = ()

    def __call__(self, inputs: DetectorInput) -> tuple[Condition, ...]:
        """One condition for each node that has such GPUs."""
        if inputs.snapshot.fabric is not self._fabric:
            self._fabric = inputs.snapshot.fabric
            self._conditions = tuple(
                condition for node in inputs.snapshot.fabric.nodes for condition in _of_node(node)
            )
        return self._conditions


def far_gpus(node: Node) -> list[Port]:
    """The GPUs of a node that have no rail on their own NUMA node."""
    rails = {port.name for port in node.ports if port.role == RAIL}
    return [port for port in node.ports if port.role == GPU and _nearest(port, rails) == _FAR]


def _nearest(gpu: Port, rails: set[str]) -> str | None:
    """What lies between a GPU and the nearest of the rails; None when nothing is known."""
    known = gpu.info.get("affinity")
    if not isinstance(known, dict):
        return None
    between = [way for name, way in known.items() if name in rails and way in _NEAREST_FIRST]
    return min(between, key=_NEAREST_FIRST.index, default=None)


def _of_node(node: Node) -> Iterator[Condition]:
    far = far_gpus(node)
    if not far:
        return
    count = sum(port.role == GPU for port in node.ports)
    names = ", ".join(port.label for port in far)
    verb = "reaches" if len(far) == 1 else "reach"
    yield Condition(
        cause="gpu_nic_numa",
        severity=WARNING,
        subject=node.name,
        rows=tuple(port.row for port in far),
        text=f"{len(far)} of {count} GPUs ({names}) {verb} the nearest NIC across the link "
        "between the CPUs",
        evidence=(
            Evidence("gpus_far", len(far), "GPUs"),
            Evidence("gpus", count, "GPUs"),
            Evidence("nearest", f"{_FAR}: another NUMA node"),
        ),
        advice="Move a NIC to the other CPU's slots, or give these GPUs to jobs inside the node; "
        "see NCCL_NET_GDR_LEVEL and NCCL_CROSS_NIC.",
        confidence=1.0,
    )
