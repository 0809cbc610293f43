"""GPUs whose registration with the NVLink fabric failed or is unhealthy, while links are active.

A GPU behind NVSwitches may use its NVLinks only after the fabric manager has registered it; until
then CUDA does not start on it. The links of such a GPU are up and count no error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, Trait
from fabmon.fabric.model import GPU, Node, Port
from fabmon.fabric.snapshot import Snapshot

CAUSE = Cause(
    name="nvlink_fabric",
    title="NVLink fabric incomplete",
    meaning="a GPU has not joined its NVLink fabric, or joined it unhealthy, or another one",
    severity=CRITICAL,
    other_severity="warning where only its health is degraded",
    rule=(
        "A GPU with active NVLinks joined the fabric with an error, or reports degraded bandwidth,"
        " bad or recovering routes, access timeouts or a wrong configuration in its health mask. Or"
        " it is in another cluster than most GPUs of its node. Or it has been joining for a minute,"
        " or has not begun for a minute while others of its node have joined. GPUs of a node none"
        " of which has begun, as without NVSwitch or with an idle IMEX domain, are not reported."
    ),
    inputs="nvmlDeviceGetGpuFabricInfoV (driver R535 or later), state of NVLinks",
    not_observable="Whether cliques of one cluster are the wanted ones",
    picture="nvlinks",
    advice=(
        "Look at nvidia-smi -q (section Fabric) and at the log of the fabric manager or of NMX;"
        " restart nvidia-fabricmanager (nvidia-imex in a rack), then reset the GPUs of the node."
    ),
    traits=(Trait.GONE,),
)

_STATES = ("not supported", "not started", "in progress", "completed")
_NOT_STARTED, _IN_PROGRESS, _COMPLETED = 1, 2, 3
"""NVML_GPU_FABRIC_STATE_*."""

_JOINS_S = 60.0
"""A GPU may be joining for that long: after a boot or a restart of the fabric manager."""

_HEALTH = (
    (0, "its bandwidth is degraded"),
    (2, "its routes are being recovered"),
    (4, "its routes are unhealthy"),
    (6, "it recovers from an access timeout"),
)
"""First bit of a field of two bits that is 1 where it is so (NVML_GPU_FABRIC_HEALTH_MASK_*)."""
_TRUE = 1
_CONFIGURATION = 8
_CONFIGURATIONS = {
    2: "the system GUID is wrong",
    3: "the serial number of the chassis is wrong",
    4: "it belongs to no partition",
    5: "it has too few NVLinks",
    6: "its firmware does not fit the others'",
    7: "its location is invalid",
    8: "its state is invalid",
}


@dataclass(frozen=True, slots=True)
class GpuFabric:
    """What a GPU reports of its fabric; `health` is 0 where it reports none."""

    gpu: Port
    state: int
    status: int
    clique: int
    health: int

    @property
    def cluster(self) -> str:
        """The UUID of the cluster; empty before the discovery after the GPU has joined."""
        return str(self.gpu.info.get("fabric_cluster") or "")

    @property
    def troubles(self) -> list[str]:
        """What the mask of its health says is wrong."""
        found = [text for shift, text in _HEALTH if self.health >> shift & 3 == _TRUE]
        wrong = _CONFIGURATIONS.get(self.health >> _CONFIGURATION & 0xF)
        return found + ([wrong] if wrong else [])


class NvlinkFabric:
    """The rule of the cause; keeps since when each GPU has not joined."""

    def __init__(self) -> None:
        self._joining: dict[str, int] = {}

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition for each GPU with active links that is not as the others of its node."""
        snapshot = inputs.snapshot
        if np.isnan(snapshot.column("gpu_fabric_state")).all():
            return
        joining: dict[str, int] = {}
        for node in snapshot.fabric.nodes:
            known = gpu_fabrics(snapshot, node)
            for each in known:
                if each.state != _COMPLETED:
                    began_seq = self._joining.get(each.gpu.id, snapshot.seq)
                    joining[each.gpu.id] = began_seq
            yield from self._of_node(snapshot, known, joining)
        self._joining = joining

    def _of_node(
        self, snapshot: Snapshot, known: list[GpuFabric], joining: dict[str, int]
    ) -> Iterator[Condition]:
        joined = [each for each in known if each.state == _COMPLETED]
        # Cliques of one cluster are partitions that somebody wanted.
        clusters = Counter(each.cluster for each in joined if not each.status and each.cluster)
        usual = clusters.most_common(1)[0] if clusters else None
        for each in known:
            text, severity = "", CAUSE.severity
            if each.state == _COMPLETED and each.status:
                text = f"joining the NVLink fabric failed with NVML's error {each.status}"
            elif each.state == _COMPLETED and each.troubles:
                text, severity = f"in the NVLink fabric {', '.join(each.troubles)}", WARNING
            elif each.state == _COMPLETED:
                if usual and 2 * usual[1] > len(joined) and each.cluster not in ("", usual[0]):
                    count = f"{usual[1]} of {len(joined)} GPUs of its node"
                    text = f"it is in another NVLink cluster than {count}"
            elif (snapshot.seq - joining[each.gpu.id]) * snapshot.interval_s < _JOINS_S:
                continue  # GPUs join one after another.
            elif each.state == _IN_PROGRESS:
                text = "it has been joining the NVLink fabric for minutes"
            elif joined and each.state in (0, _NOT_STARTED):
                text = f"it has not joined the NVLink fabric, as {len(joined)} others of its node"
            if text and _has_links(snapshot, each.gpu):
                yield _condition(each, text, severity)


def gpu_fabrics(snapshot: Snapshot, node: Node) -> list[GpuFabric]:
    """The GPUs of a node that report their fabric."""
    columns = [
        snapshot.column(f"gpu_fabric_{name}") for name in ("state", "status", "clique", "health")
    ]
    found = []
    for port in node.ports:
        if port.role != GPU or np.isnan(columns[0][port.row]):
            continue
        values = [float(column[port.row]) for column in columns]
        found.append(GpuFabric(port, *(0 if np.isnan(value) else int(value) for value in values)))
    return found


def _has_links(snapshot: Snapshot, gpu: Port) -> bool:
    """Whether an NVLink of the GPU is active; by its speed, which is that of its active links."""
    return bool(snapshot.up[gpu.row] == 1) or bool(snapshot.column("nvlink_speed_bps")[gpu.row] > 0)


def _condition(found: GpuFabric, text: str, severity: str) -> Condition:
    state = _STATES[found.state] if found.state < len(_STATES) else str(found.state)
    cluster = found.gpu.info.get("fabric_cluster")
    return Condition(
        cause=CAUSE.name,
        severity=severity,
        subject=found.gpu.id,
        rows=(found.gpu.row,),
        text=f"{found.gpu.display_name}: {text}; its links are active",
        evidence=(
            Evidence("state", state),
            Evidence("status", found.status),
            Evidence("clique", found.clique),
            Evidence("health_mask", f"{found.health:#x}"),
            *((Evidence("cluster", str(cluster)),) if cluster else ()),
        ),
        advice=CAUSE.advice,
        confidence=1.0,
        lost=0.0 if severity == WARNING else 1.0,
    )
