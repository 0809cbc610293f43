"""The health of nodes and sources, with problems and advice: as one object and as a table."""

from __future__ import annotations

import datetime
import textwrap
from collections import defaultdict
from collections.abc import Iterator

import msgspec

from collectors.coverage import summary
from fabmon.analysis.audit import audit
from fabmon.analysis.audit.sources import ABSENT, WORKS, SourceState, source_states
from fabmon.analysis.audit.survey import FIX, Problem, Survey
from fabmon.fabric.hosts.nodesets import fold
from fabmon.fabric.model import GPU, NVLINK, ROLE_ORDER, SWITCH, Node
from fabmon.fabric.node_failures import common_reason
from fabmon.fabric.tick import NodeState
from fabmon.fabric.time_wording import utc
from fabmon.fabric.wire.messages import Coverage
from fabmon.fabric.wording import label_runs, plural, trimmed

_MISSING_ON_HOSTS = {
    "ib": "no RDMA port counters: RDMA traffic that the kernel does not count is not visible",
    "rdma": "no RDMA statistics: ECN, CNP and retransmissions unknown",
    "qps": "flows between hosts unknown",
}
_MISSING = {
    "ethtool": "no driver statistics: pause, PFC, discards and FEC unknown",
    "dcb": "state of PFC and ECN unknown",
    "lldp": "cables known only from addresses or a topology file",
    "routes": "equal-cost ports and their neighbours unknown",
}
"""What is unknown of a node without a source. Other sources are of optional devices."""

_TABLE_COLUMNS = 79
_INDENT = 6 * " "


class PortRoleRow(msgspec.Struct, frozen=True, kw_only=True):
    """The role of a host's port: `rail`, `storage`, `frontend`, `member` or `management`, and why;
    `label` is its short name."""

    port: str
    label: str
    role: str
    reason: str


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One node: its state with the reason and the cause (a word or two, equal for equal failures),
    and its sources, none where it never answered. `roles` are those of a host's NICs, the rails
    first."""

    node: str
    role: str
    state: NodeState
    reason: str
    cause: str
    sources: list[SourceState]
    roles: list[PortRoleRow]


class DriverCounters(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of one driver, or of one exporter's page, over all nodes that have it.

    `seen` counts the names that were seen on the node with the most, `read` those of them that
    fabmon reads or that say the same as one it reads; `unmapped` names the others, those that
    differ in numbers only as one (`rx[0-63]_bytes`). `by_pattern`: fabmon does not know the driver
    and reads the usual names.
    """

    source: str
    driver: str
    nodes: list[str]
    seen: int
    read: int
    by_pattern: bool
    unmapped: list[str]


class DoctorRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="doctor"):
    """`fabmon doctor --format json`: every node and source, and all problems."""

    time: datetime.datetime
    nodes_up: int
    nodes_total: int
    nodes: list[NodeHealth]
    faults: list[Problem]
    counters: list[DriverCounters]

    @property
    def to_fix(self) -> int:
        """The number of problems to fix before a job runs."""
        return sum(fault.severity == FIX for fault in self.faults)


def examine(survey: Survey) -> DoctorRecord:
    """The record of a survey: nodes, sources and problems."""
    snapshot = survey.snapshot
    nodes = []
    for node in snapshot.fabric.nodes:
        status = snapshot.statuses[node.name]
        sources = source_states(survey, node.name)
        nodes.append(
            NodeHealth(
                node=node.name,
                role=node.role,
                state=status.state,
                reason=status.reason,
                cause=status.cause,
                sources=sources,
                roles=_roles(node),
            )
        )
    return DoctorRecord(
        time=utc(snapshot.time_ns),
        nodes_up=sum(each.state is NodeState.UP for each in nodes),
        nodes_total=len(nodes),
        nodes=nodes,
        faults=audit(survey),
        counters=_counters(survey),
    )


def _counters(survey: Survey) -> list[DriverCounters]:
    """The counters of every driver, those of which most are unknown first."""
    found: defaultdict[tuple[str, str, bool], list[tuple[str, Coverage]]] = defaultdict(list)
    for node in survey.snapshot.fabric.nodes:
        hello = survey.hellos.get(node.name)
        for each in (hello and hello.coverage) or ():
            found[each.source, each.driver, each.guessed].append((node.name, each))
    rows = []
    for (source, driver, guessed), parts in found.items():
        largest = max((each for _, each in parts), key=lambda each: each.seen)
        names = dict.fromkeys(name for _, each in parts for name in each.unmapped)
        rows.append(
            DriverCounters(
                source=source,
                driver=driver,
                nodes=[node for node, _ in parts],
                seen=largest.seen,
                read=largest.read,
                by_pattern=guessed,
                unmapped=list(names),
            )
        )
    return sorted(rows, key=lambda row: (row.read > 0, not row.by_pattern, row.source, row.driver))


def _roles(node: Node) -> list[PortRoleRow]:
    ports = [] if node.role == SWITCH else [p for p in node.ports if p.role not in (GPU, NVLINK)]
    ports.sort(key=lambda port: (ROLE_ORDER.index(port.role), port.index))
    return [
        PortRoleRow(port=port.name, label=port.label, role=port.role, reason=port.role_reason)
        for port in ports
    ]


def doctor_table(record: DoctorRecord) -> str:
    """The table: problems to fix, notes, the nodes, identical ones under one heading, and the
    counters that were seen and not read."""
    parts = (_summary(record), _faults(record), _nodes(record), _unmapped(record))
    return "\n".join(line for part in parts for line in part) + "\n"


def _summary(record: DoctorRecord) -> Iterator[str]:
    notes = len(record.faults) - record.to_fix
    found = f"{plural(record.to_fix, 'problem')} to fix  {plural(notes, 'note')}"
    if not (record.nodes_up or record.faults):
        found = "nothing was checked"
    answered = f"{record.nodes_up}/{record.nodes_total} nodes answered"
    yield f"{record.time:%Y-%m-%d %H:%M:%SZ}  {answered}  {found}"


def _faults(record: DoctorRecord) -> Iterator[str]:
    if record.faults:
        yield ""
    for fault in record.faults:
        sign = "!" if fault.severity == FIX else "-"
        where = fault.ports[0] if len(fault.ports) == 1 else plural(len(fault.ports), "port")
        yield f"{sign} {fault.check:<18} {where}: {fault.text}"
        yield f"    {fault.advice}"


def _nodes(record: DoctorRecord) -> Iterator[str]:
    similar: defaultdict[tuple[object, ...], list[NodeHealth]] = defaultdict(list)
    for node in record.nodes:
        sources = tuple((s.source, s.state, s.text, s.objects, s.values) for s in node.sources)
        roles = tuple((r.label, r.port, r.reason) for r in node.roles)
        # Reasons name the node or its address: nodes that fail for one cause are one block.
        why = node.cause or node.reason
        similar[node.state, why, sources, roles].append(node)
    for nodes in similar.values():
        first = nodes[0]
        yield ""
        count = f"  ({len(nodes)} nodes)" if len(nodes) > 1 else ""
        reason = common_reason((node.reason for node in nodes), first.cause)
        state = "" if first.state is NodeState.UP else f"  {first.state}: {reason}"
        yield f"{fold(node.node for node in nodes)}{count}{state}"
        for place, source in enumerate(first.sources):
            if source.state == ABSENT and not source.text:
                continue
            slowest = max((node.sources[place].read_ms or 0 for node in nodes), default=0)
            text = _source_text(source, slowest)
            yield f"  {source.source:<16} {source.state:<14} {text}".rstrip()
        yield from _absent(first)
        yield from _role_rows(first)


def _role_rows(node: NodeHealth) -> Iterator[str]:
    """The ports of each role with the reason, those with the same reason in one line."""
    similar: defaultdict[tuple[str, str], list[PortRoleRow]] = defaultdict(list)
    for port in node.roles:
        similar[port.role, port.reason].append(port)
    for (role, reason), ports in similar.items():
        labels = label_runs((port.label, role, int(port.label[1:])) for port in ports)
        names = " ".join(port.port for port in ports)
        yield f"  {role:<16} {labels:<14} {names}: {reason}"


def _absent(node: NodeHealth) -> Iterator[str]:
    """The absent sources of a node with what is unknown without each; optional ones in one line."""
    names = [each.source for each in node.sources if each.state == ABSENT and not each.text]
    effects = _MISSING if node.role == SWITCH else _MISSING_ON_HOSTS | _MISSING
    for name in names:
        if name in effects:
            yield f"  {name:<16} {ABSENT:<14} {effects[name]}"
    parts = ("_errors", "_queues", "_link")
    others = [name for name in names if name not in effects and not name.endswith(parts)]
    if others:
        yield f"  {'no device for':<16} {', '.join(others)}"


def _unmapped(record: DoctorRecord) -> Iterator[str]:
    """The counters that were seen and not read, by driver."""
    rows = [row for row in record.counters if row.unmapped]
    if rows:
        yield ""
        yield "Counters that nodes list and fabmon does not read, by driver"
    for row in rows:
        read = summary(row.seen, row.read, row.by_pattern)
        where = f"{fold(row.nodes)}: " if len(record.nodes) > 1 else ""
        yield f"  {row.source:<16} {row.driver:<14} {where}{read}. Not read:"
        yield from textwrap.wrap(
            ", ".join(row.unmapped),
            _TABLE_COLUMNS,
            initial_indent=_INDENT,
            subsequent_indent=_INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )


def _source_text(source: SourceState, read_ms: float) -> str:
    parts = [source.text] if source.text else []
    if source.state == WORKS:
        parts.insert(0, plural(source.objects, "object"))
        if source.values:
            absent = f" ({source.missing} absent)" if source.missing else ""
            parts.insert(1, f"{plural(source.values, 'value')}{absent}")
        if source.read_ms is not None:
            parts.append(f"{trimmed(read_ms)} ms per read")
    return ", ".join(parts)
