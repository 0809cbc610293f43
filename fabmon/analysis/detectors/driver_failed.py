"""A NIC, a GPU or an NVSwitch that its driver gave up, by the kernel log.

The counters of such a device stand still or cannot be read: nothing in them says why. What ends
the condition is a message that the driver has started the device again, or a reboot of the node.
"""

from __future__ import annotations

from collections.abc import Iterator

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, Trait
from fabmon.fabric.kernel_log import failed_devices, pattern_of, ports_of_device
from fabmon.fabric.model import GPU, MANAGEMENT, Node, Port
from fabmon.fabric.snapshot import Snapshot, stale_ports
from fabmon.fabric.wire.messages import Notice

CAUSE = Cause(
    name="driver_failed",
    title="Driver failed",
    meaning="by the kernel log the driver of a NIC or GPU gave it up, whatever its counters say",
    severity=CRITICAL,
    picture="kernel_messages",
    advice=(
        "Drain the node and save its kernel log; reload the driver or reset the device, else"
        " reboot. If it returns, replace the card or its riser."
    ),
    traits=(Trait.OF_HOST_PORT, Trait.GONE),
)

_GPU_ADVICE = (
    "Drain the node; run nvidia-bug-report.sh, then nvidia-smi --gpu-reset, else reboot. If it"
    " returns, the GPU, its power or its PCIe slot is faulty."
)


def failed_drivers(inputs: DetectorInput) -> Iterator[Condition]:
    """One condition for each device that does not work since a message of the kernel."""
    snapshot = inputs.snapshot
    for node in snapshot.fabric.nodes if snapshot.logs else ():
        for device, message in failed_devices(snapshot.logs.get(node.name, ())).items():
            yield _condition(snapshot, node, device, message)


def _condition(snapshot: Snapshot, node: Node, device: str, message: Notice) -> Condition:
    ports = ports_of_device(node, device)
    name = ports[0].display_name if ports else f"{node.name} {device}".strip()
    pattern = pattern_of(message)
    is_management = bool(ports) and ports[0].role == MANAGEMENT
    is_gpu = pattern.driver == "nvidia" or (bool(ports) and ports[0].role == GPU)
    return Condition(
        cause=CAUSE.name,
        severity=WARNING if is_management else CAUSE.severity,
        subject=ports[0].id if ports else f"{node.name}/{device}",
        rows=tuple(port.row for port in ports),
        text=f"{name}: {pattern.meaning}{_counters(snapshot, ports)}",
        evidence=(
            Evidence("device", device or "unknown"),
            Evidence("driver", pattern.driver),
            Evidence("message", message.text or message.metric),
        ),
        advice=_GPU_ADVICE if is_gpu else CAUSE.advice,
        confidence=1.0,
        lost=1.0,
        unseen="" if ports else "which port this device is: none of the node's has its address",
    )


def _counters(snapshot: Snapshot, ports: list[Port]) -> str:
    """What the counters of the device say, for the end of a sentence."""
    rows = [port.row for port in ports]
    if not rows:
        return ""
    if stale_ports(snapshot)[rows].all():
        return "; its counters cannot be read any more"
    is_damaged = (snapshot.column("errors")[rows] > 0).any()
    if (snapshot.up[rows] == 0).any() or is_damaged:
        return ""
    return "; its counters show no error"
