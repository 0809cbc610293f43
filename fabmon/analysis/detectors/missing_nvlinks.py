"""GPUs with fewer active NVLinks than others of their model.

A GPU that lost a link at boot, or whose link was switched off, has one link less in
`nvidia-smi topo -m` (NV17 among NV18). Collectives over NVLink run at the speed of the slowest GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import Rows
from fabmon.analysis.finding import CRITICAL, Cause, Condition, Evidence, Trait
from fabmon.fabric.model import Node, Port
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.wording import name_list

CAUSE = Cause(
    name="missing_nvlinks",
    title="Missing NVLinks",
    meaning="a GPU has fewer active NVLinks than others of its model",
    severity=CRITICAL,
    rule=(
        "A GPU has fewer active NVLinks than two thirds of the GPUs of its model have (NV17 among"
        " NV18); at least four of that model must be known. A link that was up and went down is a"
        " link down."
    ),
    inputs="State of every NVLink (NVML)",
    not_observable="A link that is missing on all GPUs",
    picture="nvlinks",
    advice=(
        "Look at nvidia-smi nvlink -s, at the fabric manager's log and at the kernel's log for"
        " Xid 74; drain the node, then reset the GPU."
    ),
    traits=(Trait.GONE,),
)

_LEAST_PEERS = 3
"""Other GPUs of the model that are needed to know the usual number of links."""

_MAJORITY = 2 / 3
"""Share of the GPUs of a model that must have the usual number: bridges may join a few only."""

_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class LinkCount:
    """A GPU with `active` links of the `usual` number; `down` are those that exist."""

    gpu: Port
    active: int
    usual: int
    down: tuple[Port, ...]

    @property
    def text(self) -> str:
        """`17 of 18 NVLinks are active (nv7 is not)`."""
        names = name_list([port.label for port in self.down], _MOST_NAMED)
        which = f" ({names} {'is' if len(self.down) == 1 else 'are'} not)" if self.down else ""
        return f"{self.active} of {self.usual} NVLinks are active{which}"


@dataclass(frozen=True, slots=True)
class _GpuLinks:
    """The GPUs that have links: `models` are numbers of their names, `rows` are all their links,
    `owner` the place of each link's GPU in `gpus`."""

    gpus: list[Port]
    models: Rows
    rows: Rows
    owner: Rows


def missing_nvlinks(inputs: DetectorInput) -> Iterator[Condition]:
    """One condition for each GPU that lacks links which were never up while it was watched."""
    snapshot = inputs.snapshot
    for found in _missing(snapshot, inputs.structure.of_nodes(Node.gpu_links, _links)):
        went_down = sum(bool(snapshot.was_up[port.row]) for port in found.down)
        if found.active + went_down >= found.usual:
            continue
        yield Condition(
            cause=CAUSE.name,
            severity=CAUSE.severity,
            subject=found.gpu.id,
            rows=(found.gpu.row, *(port.row for port in found.down)),
            text=f"{found.gpu.display_name}: {found.text}, on other GPUs of this model all are",
            evidence=(
                Evidence("active", found.active, "links"),
                Evidence("usual", found.usual, "links"),
            ),
            advice=CAUSE.advice,
            confidence=1.0,
            lost=1 - found.active / found.usual,
        )


def gpus_with_missing_links(snapshot: Snapshot) -> list[LinkCount]:
    """The GPUs with fewer active NVLinks than most GPUs of their model have.

    GPUs whose links, or the state of one of them, are unknown are left out.
    """
    return _missing(snapshot, _links([node.gpu_links() for node in snapshot.fabric.nodes]))


def _missing(snapshot: Snapshot, links: _GpuLinks) -> list[LinkCount]:
    count = len(links.gpus)
    up = snapshot.up[links.rows]
    unknown = np.bincount(links.owner, np.isnan(up), count) > 0
    active = np.bincount(links.owner, up == 1, count).astype(np.intp)
    found = []
    for model in np.unique(links.models):
        known = (links.models == model) & ~unknown
        number = np.bincount(active[known]) if known.any() else np.zeros(1, np.intp)
        usual = int(number.argmax())
        if known.sum() <= _LEAST_PEERS or number[usual] < _MAJORITY * known.sum():
            continue
        for place in np.flatnonzero(known & (active < usual)).tolist():
            own = links.rows[(links.owner == place) & (up == 0)]
            down = tuple(snapshot.fabric.ports[row] for row in own.tolist())
            found.append(LinkCount(links.gpus[place], int(active[place]), usual, down))
    return found


def _links(nodes: list[list[tuple[Port, list[Port]]]]) -> _GpuLinks:
    """The links of the GPUs of all nodes."""
    gpus: list[Port] = []
    rows: list[int] = []
    owner: list[int] = []
    for of_node in nodes:
        for gpu, links in of_node:
            rows += [port.row for port in links]
            owner += [len(gpus)] * len(links)
            gpus.append(gpu)
    names = [str(gpu.info.get("gpu_name", "")) for gpu in gpus]
    models = np.unique(names, return_inverse=True)[1] if names else np.empty(0)
    return _GpuLinks(
        gpus, models.astype(np.intp), np.array(rows, np.intp), np.array(owner, np.intp)
    )
