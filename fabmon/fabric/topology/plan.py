"""The planned topology, from the configuration or from files of any format.

TopologyError    a file cannot be read, or has invalid lines; the message has their numbers
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from fabmon.fabric.input_files import problem_lines
from fabmon.fabric.wire.messages import clean

CONFIG = "config"
INFINIBAND = "InfiniBand discovery"


class PlanProblem(NamedTuple):
    """An error on a line (from 1; 0 for the whole file), and what to write instead."""

    line: int
    text: str
    fix: str


class TopologyError(Exception):
    """All errors of a topology, in order. As text: `file:line: what: fix`."""

    def __init__(self, filename: str, problems: Sequence[PlanProblem]) -> None:
        self.problems = tuple(sorted(problems))
        name = clean(filename)
        super().__init__(problem_lines(name, [self._render(name, each) for each in self.problems]))

    @staticmethod
    def _render(filename: str, problem: PlanProblem) -> str:
        where = f"{filename}:{problem.line}" if problem.line else filename
        fix = f": {clean(problem.fix)}" if problem.fix else ""
        return f"{where}: {clean(problem.text)}{fix}"


class End(NamedTuple):
    """One end of a cable, by the names of one source.

    `port` is empty where only the node is known. `also` are further possible names of the port,
    `ids` its addresses (MAC, GUID), which are the same in all sources.
    """

    node: str
    port: str = ""
    also: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()


class PlannedCable(NamedTuple):
    """A cable from a source of topology; `by` is the place, as `file:line`."""

    one: End
    other: End
    source: str
    by: str


class Nearness(msgspec.Struct, frozen=True):
    """The PCIe topology of a machine from NCCL: `nics` by PCI address in NCCL's order, their device
    names if present, and `between` (GPU, NIC) in the terms of nvidia-smi (PIX, PXB, NODE, SYS).
    """

    nics: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    between: dict[tuple[str, str], str] = {}


class Topology(msgspec.Struct, frozen=True):
    """Everything that is planned; empty where nothing is.

    `tiers`, `planes`, `pods` and `groups` are by node; `groups` is the leaf of a host.
    `hosts` and `switches` are the nodes whose role the plan gives. `rails` are the hosts' ports in
    the order of the rails, by name, interface, RDMA device or PCI address. `routing` is the routing
    mode by pattern of nodes or groups, the most specific last.
    """

    cables: tuple[PlannedCable, ...] = ()
    tiers: dict[str, int] = {}
    planes: dict[str, str] = {}
    pods: dict[str, str] = {}
    groups: dict[str, str] = {}
    hosts: frozenset[str] = frozenset()
    switches: frozenset[str] = frozenset()
    rails: tuple[str, ...] = ()
    nearness: Nearness = Nearness()
    routing: dict[str, str] = {}


def joined(parts: Iterable[Topology]) -> Topology:
    """Several plans as one; where two differ, the first is used."""
    whole = Topology()
    for part in parts:
        near = part.nearness
        whole = Topology(
            cables=whole.cables + part.cables,
            tiers={**part.tiers, **whole.tiers},
            planes={**part.planes, **whole.planes},
            pods={**part.pods, **whole.pods},
            groups={**part.groups, **whole.groups},
            hosts=whole.hosts | part.hosts,
            switches=whole.switches | part.switches,
            rails=whole.rails or part.rails,
            nearness=whole.nearness if whole.nearness.nics else near,
            routing=whole.routing or part.routing,
        )
    return whole
