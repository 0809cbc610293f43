"""A NIC, a GPU or an NVSwitch that its driver gave up, by the kernel log.

The counters of such a device stand still or cannot be read: nothing in them says why. A reset of a
GPU (nvidia-smi --gpu-reset) logs nothing before R550: it shows in what can be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, Trait
from fabmon.fabric.kernel_log import failed_devices, pattern_of, ports_of_device
from fabmon.fabric.model import GPU, MANAGEMENT, Node, Port
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.wire.messages import Notice

CAUSE = Cause(
    name="driver_failed",
    title="Driver failed",
    meaning="by the kernel log the driver of a NIC or GPU gave it up, whatever its counters say",
    severity=CRITICAL,
    other_severity="warning for management ports",
    rule=(
        "The kernel logged that a NIC, GPU or NVSwitch does not work until it is reset: mlx5"
        " firmware that does not answer, fails or does not recover; a GPU that amdgpu lost or could"
        " not reset; Xid 46, 62, 79, 95, 119, 120, 143, or 154 with a reset or reboot required; a"
        " fatal SXid. It ends when the driver starts the device again, or with a reboot. For a GPU"
        " it also ends when its counters could not be read for 5 s while others of its node could,"
        " and then could for 60 s with no link down. It explains links of the device that are down"
        " or missing."
    ),
    inputs="The kernel log (kernel_log), from the start of the probe on",
    not_observable=(
        "What was logged before fabmon was started. A GPU that was reset without a message, and"
        " whose counters could be read all the while"
    ),
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


_SILENT_S = 5.0
"""A GPU that does not answer for so long was reset, or is lost."""

_ANSWERS_S = 60.0
"""A GPU that answers for so long after that works."""


@dataclass(slots=True)
class _Gpu:
    """What the counters of a GPU did since a message: when it stopped and began to answer."""

    logged_ns: int | None
    silent_ns: int | None = None
    answers_ns: int | None = None
    was_silent: bool = False

    def note(self, answers: bool, now_ns: int) -> None:
        """Take what is seen now."""
        if answers:
            self.silent_ns = None
            self.answers_ns = now_ns if self.answers_ns is None else self.answers_ns
        else:
            self.answers_ns = None
            self.silent_ns = now_ns if self.silent_ns is None else self.silent_ns
            self.was_silent |= (now_ns - self.silent_ns) / 1e9 >= _SILENT_S

    def works_again(self, now_ns: int) -> bool:
        """Whether it was reset: it did not answer, and has answered since then."""
        since_ns = self.answers_ns
        return self.was_silent and since_ns is not None and (now_ns - since_ns) / 1e9 >= _ANSWERS_S


class FailedDrivers:
    """The rule of the cause; keeps whether each GPU that failed has answered since."""

    def __init__(self) -> None:
        self._gpus: dict[tuple[str, str], _Gpu] = {}

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition for each device that does not work since a message of the kernel."""
        snapshot = inputs.snapshot
        now_ns = int(snapshot.seq * snapshot.interval_s * 1e9)  # The wall clock may be set.
        kept: dict[tuple[str, str], _Gpu] = {}
        for node in snapshot.fabric.nodes if snapshot.logs else ():
            for device, message in failed_devices(snapshot.logs.get(node.name, ())).items():
                ports = ports_of_device(node, device)
                if any(port.role == GPU for port in ports):
                    gpu = self._gpus.get((node.name, device))
                    if gpu is None or gpu.logged_ns != message.logged_ns:
                        gpu = _Gpu(message.logged_ns or None)
                    kept[node.name, device] = gpu
                    answers = _answers(snapshot, node, ports)
                    if answers is not None:
                        gpu.note(answers, now_ns)
                    if gpu.works_again(now_ns):
                        continue
                yield _condition(snapshot, node, device, message)
        self._gpus = kept


def _answers(snapshot: Snapshot, node: Node, ports: list[Port]) -> bool | None:
    """Whether the counters of a GPU can be read and its links are up; None where nothing of its
    node can be read."""
    stale = snapshot.stale
    own = [port.row for port in ports]
    others = [port.row for port in node.ports if port.row not in own]
    if not others or stale[others].all():
        return None
    is_known = np.isfinite(snapshot.column("tx_bps")[own]) & ~stale[own]
    return bool(is_known.any()) and not bool((snapshot.up[own] == 0).any())


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
    if snapshot.stale[rows].all():
        return "; its counters cannot be read any more"
    is_damaged = (snapshot.column("errors")[rows] > 0).any()
    if (snapshot.up[rows] == 0).any() or is_damaged:
        return ""
    return "; its counters show no error"
