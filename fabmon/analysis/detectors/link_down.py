"""A port that was up is down."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.link_health import cable_subject
from fabmon.analysis.fabric_structure import NONE, Rows
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, Trait
from fabmon.fabric.model import GPU, MANAGEMENT, NVLINK

CAUSE = Cause(
    name="link_down",
    title="Link down",
    meaning="a port that was up is down",
    severity=CRITICAL,
    other_severity="warning for management ports",
    rule=(
        "A port that was up is down. It is one finding for each cable, or for a host all of whose"
        " rails are down. A lost node, a failed driver and a flapping link explain it."
    ),
    inputs="Port state of either end",
    not_observable="The other end, where it is not watched. Ports that were down from the start",
    picture="link_ends",
    advice="Check the cable and the optics, then the switch's log for this port.",
    traits=(Trait.OF_LINK, Trait.MAKES_QUEUES, Trait.STOPS_PAUSE_FRAMES, Trait.GONE),
)

_NVLINK_ADVICE = (
    "Look at nvidia-smi nvlink -s and at the kernel's log for Xid 74; drain the node, "
    "then reset the GPU."
)
_HOST_ADVICE = "Look at the host: its power and its BMC; then at the switches it is cabled to."


def links_down(inputs: DetectorInput) -> Iterator[Condition]:
    """One condition for each cable, and one for each host all of whose links are down.

    Ports that have been down since the start are left out: most are not meant to be up.
    """
    snapshot, peer = inputs.snapshot, inputs.structure.peer
    down = snapshot.was_up & (snapshot.up == 0)
    if not down.any():
        return
    reported: set[int] = set()
    for rails in inputs.structure.rails_of_hosts:
        ends = peer[rails]
        is_cut = down[rails] | ((ends != NONE) & down[ends])
        if len(rails) > 1 and is_cut.all():
            ends = ends[ends != NONE]
            reported.update(rails.tolist(), ends.tolist())
            yield _host(inputs, rails, ends)
    for row in np.flatnonzero(down).tolist():
        if row not in reported and snapshot.fabric.ports[row].node:
            reported.add(int(peer[row]))
            yield _link(inputs, row)


def _host(inputs: DetectorInput, rails: Rows, ends: Rows) -> Condition:
    """A host that is cut off."""
    name = inputs.snapshot.fabric.ports[int(rails[0])].node
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=name,
        rows=(*rails.tolist(), *ends.tolist()),
        text=f"all {len(rails)} links of {name} are down",
        evidence=(Evidence("links", len(rails), "links"),),
        advice=_HOST_ADVICE,
        confidence=1.0,
        lost=1.0,
    )


def _link(inputs: DetectorInput, row: int) -> Condition:
    subject, ports = cable_subject(inputs, row), inputs.snapshot.fabric.ports
    ends = [ports[end] for end in (row, int(inputs.structure.peer[row])) if end != NONE]
    ends.sort(key=lambda end: end.id != subject)
    port, unseen = ends[0], ""
    if len(ends) == 1:
        unseen = (
            "the other end: "
            + ("its cable is not known", "it is not watched")[port.cable is not None]
        )
    return Condition(
        cause=CAUSE.name,
        severity=WARNING if port.role == MANAGEMENT else CAUSE.severity,
        subject=subject,
        rows=tuple(end.row for end in ends),
        text=f"{' to '.join(end.display_name for end in ends)} is down",
        evidence=(),
        advice=_NVLINK_ADVICE if port.role in (GPU, NVLINK) else CAUSE.advice,
        confidence=1.0,
        lost=1.0,
        unseen=unseen,
    )
