"""The selected finding and its ports and nodes, which every view marks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.finding import Finding
from fabmon.fabric.model import Fabric


@dataclass(frozen=True, slots=True)
class Selection:
    """A selected finding: `rows` are both ends of its links, `nodes` its subjects and victims."""

    finding: Finding
    rows: NDArray[np.intp]
    nodes: frozenset[str]


def selection_of(finding: Finding, fabric: Fabric) -> Selection:
    """The ports and nodes of a finding in a fabric."""
    ports = fabric.ports
    own = [row for row in finding.rows if 0 <= row < len(ports) and ports[row].node]
    peers = [peer for row in own if (peer := ports[row].peer) is not None and peer < len(ports)]
    known = {node.name for node in fabric.nodes}
    named = {
        name.partition("/")[0].partition(" ")[0] for name in (finding.subject, *finding.victims)
    }
    nodes = {ports[row].node for row in own} | (named & known)
    return Selection(finding, np.unique(np.array([*own, *peers], np.intp)), frozenset(nodes))
