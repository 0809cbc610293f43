"""A port that was up is down."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import NONE, Rows
from fabmon.analysis.finding import CRITICAL, WARNING, Cause, Condition, Evidence, Trait
from fabmon.fabric.model import GPU, MANAGEMENT, NVLINK, Port
from fabmon.fabric.snapshot import Snapshot

CAUSE = Cause(
    name="link_down",
    title="Link down",
    severity=CRITICAL,
    picture="link_ends",
    traits=(
        Trait.OF_LINK,
        Trait.MAKES_QUEUES,
        Trait.STOPS_PAUSE_FRAMES,
        Trait.GONE,
    ),
)


_ADVICE = "Look at the cable and the optics, then at the log of the switch for this port."
_ADVICE_INSIDE = (
    "Look at nvidia-smi nvlink -s and at the kernel's log for Xid 74; drain the node, "
    "then reset the GPU."
)


def links_down(inputs: DetectorInput) -> Iterator[Condition]:
    """One condition for every cable: a link whose two ends are watched is told once. A host all of
    whose links are down is told once too.

    Ports that have been down since the start are not judged: most are not meant to be up.
    """
    snapshot = inputs.snapshot
    down = snapshot.was_up & (snapshot.up == 0)
    if not down.any():
        return
    told: set[int] = set()
    for rails in inputs.structure.rails_of_hosts:
        ends = inputs.structure.peer[rails]
        away = down[rails] | ((ends != NONE) & down[ends])
        if len(rails) > 1 and away.all():
            told.update(rails.tolist())
            told.update(ends[ends != NONE].tolist())
            yield _host(inputs, rails, ends[ends != NONE])
    for row in np.flatnonzero(down).tolist():
        port = snapshot.fabric.ports[row]
        if row in told or not port.node:
            continue
        if port.peer is not None:
            told.add(port.peer)
        yield _condition(snapshot, port)


def _host(inputs: DetectorInput, rails: Rows, ends: Rows) -> Condition:
    """A host that is cut off."""
    name = inputs.snapshot.fabric.ports[int(rails[0])].node
    return Condition(
        cause="link_down",
        severity=CRITICAL,
        subject=name,
        rows=(*rails.tolist(), *ends.tolist()),
        text=f"all {len(rails)} links of {name} are down",
        evidence=(Evidence("links", len(rails), "links"),),
        advice="Look at the host: its power and its BMC; then at the switches it is cabled to.",
        confidence=1.0,
        lost=1.0,
    )


def _condition(snapshot: Snapshot, port: Port) -> Condition:
    peer = None if port.peer is None else snapshot.fabric.ports[port.peer]
    ends = " to ".join(end.display_name for end in (port, peer) if end is not None and end.node)
    rows = (port.row,) if port.peer is None else (port.row, port.peer)
    return Condition(
        cause="link_down",
        severity=WARNING if port.role == MANAGEMENT else CRITICAL,
        subject=port.id,
        rows=rows,
        text=f"{ends} is down",
        evidence=(),
        advice=_ADVICE_INSIDE if port.role in (GPU, NVLINK) else _ADVICE,
        confidence=1.0,
        lost=1.0,
        unseen="" if peer is not None else "the other end is not watched",
    )
