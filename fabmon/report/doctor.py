"""What the doctor found, as one object and as a table."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator

import msgspec

from fabmon.analysis.audit import audit
from fabmon.analysis.audit.sources import ABSENT, WORKS, SourceState, source_states
from fabmon.analysis.audit.survey import FIX, Problem, Survey
from fabmon.fabric.hosts.nodesets import fold
from fabmon.fabric.model import SWITCH
from fabmon.fabric.tick import NodeState
from fabmon.report.records import utc

_COSTS_OF_HOSTS = {
    "ib": "no RDMA port counters: RDMA traffic is not seen where the kernel does not count it",
    "rdma": "no RDMA statistics: ECN, CNP and retransmissions unknown",
    "qps": "who talks to whom is unknown",
}
_COSTS = {
    "ethtool": "no statistics of drivers: pause, PFC, discards and FEC unknown",
    "dcb": "whether PFC and ECN are on is unknown",
    "lldp": "cables are known from addresses or a plan only",
    "routes": "which ports are equal-cost, and who is their neighbour, is unknown",
}
"""What is not known of a node without a source. The others are of devices that not all have."""


class NodeHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One node: its state, why it is in it, and its sources; none when it never answered."""

    node: str
    role: str
    state: NodeState
    reason: str
    sources: list[SourceState]


class DoctorRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="doctor"):
    """`fabmon doctor --format json`: every node and source, and what is to be mended or known."""

    time: datetime.datetime
    nodes_up: int
    nodes_total: int
    nodes: list[NodeHealth]
    faults: list[Problem]

    @property
    def to_mend(self) -> int:
        """Faults that should be mended before a run."""
        return sum(fault.severity == FIX for fault in self.faults)


def examine(survey: Survey) -> DoctorRecord:
    """Judge what was heard."""
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
                sources=sources,
            )
        )
    return DoctorRecord(
        time=utc(snapshot.time_ns),
        nodes_up=sum(each.state is NodeState.UP for each in nodes),
        nodes_total=len(nodes),
        nodes=nodes,
        faults=audit(survey),
    )


def doctor_json(record: DoctorRecord) -> bytes:
    """The record, indented, with a last newline."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def doctor_schema() -> bytes:
    """JSON Schema of that, as committed."""
    document = msgspec.json.schema(DoctorRecord)
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def doctor_table(record: DoctorRecord) -> str:
    """For a person: what to mend, what to know, then nodes that are alike under one heading."""
    return "\n".join([*_summary(record), *_faults(record), *_nodes(record)]) + "\n"


def _summary(record: DoctorRecord) -> Iterator[str]:
    time = record.time.strftime("%Y-%m-%d %H:%M:%SZ")
    know = len(record.faults) - record.to_mend
    yield (
        f"{time}  {record.nodes_up}/{record.nodes_total} nodes answered  "
        f"{record.to_mend} to mend  {know} to know"
    )


def _faults(record: DoctorRecord) -> Iterator[str]:
    if record.faults:
        yield ""
    for fault in record.faults:
        sign = "!" if fault.severity == FIX else "-"
        where = fault.ports[0] if len(fault.ports) == 1 else f"{len(fault.ports)} ports"
        yield f"{sign} {fault.check:<18} {where}: {fault.text}"
        yield f"    {fault.advice}"


def _nodes(record: DoctorRecord) -> Iterator[str]:
    alike: defaultdict[tuple[object, ...], list[NodeHealth]] = defaultdict(list)
    for node in record.nodes:
        sources = tuple((s.source, s.state, s.text, s.objects, s.values) for s in node.sources)
        alike[node.state, node.reason, sources].append(node)
    for nodes in alike.values():
        first = nodes[0]
        yield ""
        count = f"  ({len(nodes)} nodes)" if len(nodes) > 1 else ""
        state = "" if first.state is NodeState.UP else f"  {first.state}: {first.reason}"
        yield f"{fold(node.node for node in nodes)}{count}{state}"
        for place, source in enumerate(first.sources):
            if source.state == ABSENT:
                continue
            slowest = max((node.sources[place].read_ms or 0 for node in nodes), default=0)
            yield f"  {source.source:<16} {source.state:<14} {_words(source, slowest)}".rstrip()

        yield from _absent(first)


def _absent(node: NodeHealth) -> Iterator[str]:
    """What a node lacks, and what that costs; a line for all that only some devices have."""
    names = [each.source for each in node.sources if each.state == ABSENT]
    costs = _COSTS if node.role == SWITCH else _COSTS_OF_HOSTS | _COSTS
    for name in names:
        if name in costs:
            yield f"  {name:<16} {ABSENT:<14} {costs[name]}"
    parts = ("_errors", "_queues", "_link")
    others = [name for name in names if name not in costs and not name.endswith(parts)]
    if others:
        yield f"  {'no device for':<16} {', '.join(others)}"


def _words(source: SourceState, read_ms: float) -> str:
    parts = [source.text] if source.text else []
    if source.state == WORKS:
        parts.insert(0, f"{source.objects} objects")
        if source.values:
            absent = f" ({source.missing} absent)" if source.missing else ""
            parts.insert(1, f"{source.values} values{absent}")
        if source.read_ms is not None:
            parts.append(f"{read_ms:g} ms a read")
    return ", ".join(parts)
