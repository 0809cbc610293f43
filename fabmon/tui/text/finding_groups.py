"""Findings as the lines of a list: those of one cause at one place are one line with a count.

What explains a congested path has that path below it. The number of lines is bounded by the number
of causes, and the time to compute them is linear in the number of findings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from fabmon.analysis.causes import causes_with
from fabmon.analysis.detectors import congested_path, straggler
from fabmon.analysis.finding import Finding, Trait
from fabmon.analysis.iteration.results import JobIteration
from fabmon.fabric.filter import Matched
from fabmon.fabric.model import DOWNLINK, GPU, HOST, NVLINK, RAIL, UPLINK, Fabric, Node, Port
from fabmon.fabric.wording import plural

MANY = 3
"""From this many findings of one cause at one place on, they are one line."""
_MOST_LINES = 8
"""More lines than this of one cause are one line for the whole fabric."""
_NOUNS = {RAIL: "rail", UPLINK: "uplink", DOWNLINK: "downlink", GPU: "GPU", NVLINK: "NVLink"}

_OF_LINK = causes_with(Trait.OF_LINK)

Place = tuple[str, str]
"""(how findings belong to it, its name): `("of", "leaf3")`, `("under", "leaf3")`."""

MOST_CLOSED = 5
"""Closed findings that are listed, at most."""


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """One line of a list: a finding, or several of one cause at one place.

    `findings` are in the order of the scene; `explained` are congested paths that they cause.
    `where` is the place, empty for a single finding: `of leaf3`, `under leaf3`, `of 20 nodes`.
    """

    findings: tuple[Finding, ...]
    explained: tuple[Finding, ...] = ()
    where: str = ""

    @property
    def first(self) -> Finding:
        """The most severe finding."""
        return self.findings[0]

    @property
    def is_single(self) -> bool:
        """Whether it is one finding, shown in full."""
        return len(self.findings) == 1

    @property
    def key(self) -> str:
        """The key of the only finding; of several, their cause and place."""
        place = "fabric" if self.where.endswith(" nodes") else self.where
        return self.first.key if self.is_single else f"{self.first.cause}@{place}"

    def subject(self, fabric: Fabric) -> str:
        """What several findings are about: `12 uplinks of leaf3`."""
        nouns = {_noun(finding, fabric) for finding in self.findings}
        noun = nouns.pop() if len(nouns) == 1 else "finding"
        return f"{plural(len(self.findings), noun)} {self.where}"


def matching(findings: Sequence[Finding], matched: Matched | None) -> Sequence[Finding]:
    """The findings that a filter leaves: those with a port or a subject that matches it."""
    if matched is None:
        return findings
    return [
        finding
        for finding in findings
        if any(matched.ports[row] for row in finding.rows) or finding.subject_node in matched.nodes
    ]


def finding_groups(
    findings: Sequence[Finding], fabric: Fabric, jobs: Iterable[JobIteration] = ()
) -> tuple[FindingGroup, ...]:
    """The lines of a list of findings, in the order of their first findings.

    Findings of one cause are grouped by their node; those left by the leaf of their host, then by
    its job. A cause that still has many lines is one line.
    """
    groups = _by_root(findings)
    nodes = {node.name: node for node in fabric.nodes}
    job_of = {host: job.name.removeprefix("job ") for job in jobs for host in job.hosts}

    def leaf(node: str) -> Place | None:
        known = nodes.get(node)
        is_below = known is not None and known.role == HOST and known.group not in ("", node)
        return ("under", known.group) if known is not None and is_below else None

    def job(node: str) -> Place | None:
        return ("of job", job_of[node]) if node in job_of else None

    steps: tuple[Callable[[str], Place | None], ...] = (lambda node: ("of", node), leaf, job)
    for place_of in steps:
        groups = _merged(groups, fabric, nodes, place_of)
    return tuple(_bounded(groups, fabric))


def _by_root(findings: Sequence[Finding]) -> list[FindingGroup]:
    """Each finding with the congested paths that it explains; the order is kept."""
    of_node: dict[str, int] = {}
    of_row: dict[int, int] = {}
    for number, root in enumerate(findings):
        if root.cause != congested_path.CAUSE.name:
            # Hosts that wait for a late one have no congested path for that.
            for name in () if root.cause == straggler.CAUSE.name else root.victims:
                of_node.setdefault(name.partition("/")[0].partition(" ")[0], number)
            for row in root.rows:
                of_row.setdefault(row, number)
    explained: dict[int, list[Finding]] = defaultdict(list)
    roots = []
    for number, finding in enumerate(findings):
        causing = []
        if finding.cause == congested_path.CAUSE.name:
            causing = [of_row[row] for row in finding.rows if row in of_row]
            causing += [of_node[finding.subject]] if finding.subject in of_node else []
        if causing:
            explained[min(causing)].append(finding)
        else:
            roots.append(number)
    return [FindingGroup((findings[number],), tuple(explained[number])) for number in roots]


def _merged(
    groups: Sequence[FindingGroup],
    fabric: Fabric,
    nodes: dict[str, Node],
    place_of: Callable[[str], Place | None],
) -> list[FindingGroup]:
    """The groups, single findings of one cause at one place merged where there are MANY."""
    members: dict[tuple[str, Place], list[FindingGroup]] = defaultdict(list)
    for group in groups:
        node = _node(group.first, fabric)
        place = place_of(node) if group.is_single and node in nodes else None
        if place is not None:
            members[group.first.cause, place].append(group)
    merged = {
        id(own[0]): _merge(own, " ".join(place))
        for (_, place), own in members.items()
        if len(own) >= MANY
    }
    gone = {id(each) for own in members.values() if len(own) >= MANY for each in own[1:]}
    return [merged.get(id(group), group) for group in groups if id(group) not in gone]


def _bounded(groups: Sequence[FindingGroup], fabric: Fabric) -> list[FindingGroup]:
    """The groups, those of a cause that has more than _MOST_LINES as one."""
    of_cause: dict[str, list[FindingGroup]] = defaultdict(list)
    for group in groups:
        of_cause[group.first.cause].append(group)
    kept = []
    for group in groups:
        own = of_cause[group.first.cause]
        if len(own) <= _MOST_LINES:
            kept.append(group)
        elif group is own[0]:
            found = _merge(own, "")
            nodes = {_node(each, fabric) for each in found.findings}
            kept.append(replace(found, where=f"of {len(nodes)} nodes"))
    return kept


def _merge(groups: Sequence[FindingGroup], where: str) -> FindingGroup:
    findings = tuple(finding for group in groups for finding in group.findings)
    explained = tuple(finding for group in groups for finding in group.explained)
    return FindingGroup(findings, explained, where)


def port_of(finding: Finding, fabric: Fabric) -> Port | None:
    """The port that a finding is about; None where it is about a node, a job or several ports."""
    rows = finding.rows[: 2 if finding.cause in _OF_LINK else 1]
    ends = [fabric.ports[row] for row in rows if 0 <= row < len(fabric.ports)]
    return next(
        (port for port in ends if finding.subject in (port.id, f"{port.node}/{port.label}")), None
    )


def _node(finding: Finding, fabric: Fabric) -> str:
    port = port_of(finding, fabric)
    return finding.subject_node if port is None else port.node


def _noun(finding: Finding, fabric: Fabric) -> str:
    port = port_of(finding, fabric)
    if port is not None:
        return _NOUNS.get(port.role, "port")
    about = {fabric.ports[row].node for row in finding.rows if 0 <= row < len(fabric.ports)}
    return "node" if about <= {finding.subject} else "finding"
