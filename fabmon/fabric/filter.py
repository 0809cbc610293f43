"""The filter of `/` and `--links`: words, fields and comparisons, all of which must match.

gpu0        the node's, port's or group's name contains it
state:down  also up, stale, lost, failed, queued, connecting, starting
role:switch group:leaf1 node:gpu001 port:mlx5_0 rail:3
job:8801 user:anna partition:train  the nodes of jobs, and the uplinks that these need
util>80     also tx rx pause (percent), ecn cnp errors drops (per second); > >= < <=
!word       negates any of them
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.jobs.job import Job
from fabmon.fabric.measures import NAMES, measure
from fabmon.fabric.model import HOST, RAIL, SWITCH, UPLINK, Fabric
from fabmon.fabric.names import nearest
from fabmon.fabric.port_arrays import NONE
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState

Mask = NDArray[np.bool_]

FIELDS = ("state", "role", "group", "node", "port", "rail", "job", "user", "partition")
_JOB_FIELDS = ("job", "user", "partition")
_STATES = ("down", *(str(state) for state in NodeState))
_COMPARISON = re.compile(r"([a-z][a-z0-9-]*)(>=|<=|>|<)(.*)", re.DOTALL)
_OPERATORS: dict[str, Callable[[NDArray[np.float32], float], Mask]] = {
    ">": np.greater,
    ">=": np.greater_equal,
    "<": np.less,
    "<=": np.less_equal,
}


class FilterError(ValueError):
    """An invalid filter; the message says what is valid."""


@dataclass(frozen=True, slots=True)
class Term:
    """One condition. `operator` is empty for a word, `:` for a field, else a comparison."""

    field: str
    operator: str
    value: str
    negated: bool
    number: float = 0.0


@dataclass(frozen=True, slots=True)
class Matched:
    """The result of a filter: [ports], and the names of the nodes with any of them."""

    ports: Mask
    nodes: frozenset[str]

    @property
    def is_empty(self) -> bool:
        """Whether nothing matches."""
        return not self.nodes and not self.ports.any()


@dataclass(frozen=True, slots=True)
class Index:
    """The searchable texts of a fabric, lower case.

    `owner` [ports] is the index of each port's node, -1 for a port that no longer exists.
    """

    fabric: Fabric
    owner: NDArray[np.intp]
    node_texts: tuple[str, ...]
    port_texts: tuple[str, ...]


def parse(text: str) -> tuple[Term, ...]:
    """The terms of a filter. Raises FilterError with the invalid word and what is valid."""
    return tuple(_term(word) for word in text.lower().split())


def _term(word: str) -> Term:
    negated = word.startswith("!")
    body = word[1:] if negated else word
    if not body:
        raise FilterError("nothing after !")
    if comparison := _COMPARISON.fullmatch(body):
        name, operator, value = comparison.groups()
        try:
            measure(name)
        except KeyError:
            raise FilterError(f"{name}: compare one of {' '.join(NAMES)}") from None
        try:
            return Term(name, operator, value, negated, float(value.rstrip("%")))
        except ValueError:
            raise FilterError(f"{body}: {operator} needs a number") from None
    field, colon, value = body.partition(":")
    if not colon:
        return Term("", "", body, negated)
    if field not in FIELDS:
        close = difflib.get_close_matches(field, FIELDS, 1)
        fix = f"did you mean {close[0]}:?" if close else f"keys are {' '.join(FIELDS)}"
        raise FilterError(f"unknown key {field!r}: {fix}")
    if field == "role" and not any(value in role for role in (HOST, SWITCH)):
        raise FilterError(f"role:{value} is not one of {HOST} {SWITCH}")
    if field == "state" and not any(state.startswith(value) for state in _STATES):
        raise FilterError(f"state:{value} is not one of {' '.join(_STATES)}")
    return Term(field, ":", value, negated)


def index(fabric: Fabric) -> Index:
    """The index of a fabric."""
    place = {node.name: number for number, node in enumerate(fabric.nodes)}
    owner = np.array([place.get(port.node, -1) for port in fabric.ports], dtype=np.intp)
    nodes = tuple(f"{node.name} {node.group}".lower() for node in fabric.nodes)
    ports = tuple(f"{port.id} {port.label}".lower() for port in fabric.ports)
    return Index(fabric, owner, nodes, ports)


def match(terms: tuple[Term, ...], snapshot: Snapshot, known: Index) -> Matched:
    """The ports and nodes of a snapshot that match."""
    fabric = snapshot.fabric
    ports = known.owner >= 0
    nodes = np.ones(len(fabric.nodes), dtype=np.bool_)
    for term in terms:
        on_ports, on_nodes = _masks(term, snapshot, known)
        ports &= ~on_ports if term.negated else on_ports
        nodes &= ~on_nodes if term.negated else on_nodes
    bare = np.array([not node.ports for node in fabric.nodes], dtype=np.bool_)
    with_port = np.zeros(len(fabric.nodes), dtype=np.bool_)
    with_port[known.owner[ports]] = True
    left = with_port | (nodes & bare)
    names = frozenset(fabric.nodes[number].name for number in np.flatnonzero(left).tolist())
    return Matched(ports, names)


def _masks(term: Term, snapshot: Snapshot, known: Index) -> tuple[Mask, Mask]:
    """Where a term matches: [ports] and, for nodes that have no port yet, [nodes]."""
    fabric, value = snapshot.fabric, term.value
    nothing = np.zeros(len(fabric.nodes), dtype=np.bool_)
    if term.operator not in ("", ":"):
        compared = measure(term.field)
        number = term.number / 100 if compared.range.is_share else term.number
        values = np.nan_to_num(compared.values(snapshot), nan=-1)
        return _OPERATORS[term.operator](values, number) & (values >= 0), nothing
    if term.field == "state":
        return _state(value, snapshot, known)
    if term.field in ("role", "group", "node"):
        texts = [
            str(getattr(node, {"node": "name"}.get(term.field, term.field)))
            for node in fabric.nodes
        ]
        nodes = _mask(value in text.lower() for text in texts)
        return _of_ports(nodes, known), nodes
    if term.field in _JOB_FIELDS:
        return _of_jobs(term, snapshot, known)
    if term.field == "rail":
        wanted = (value, f"r{value}")
        return _mask(p.role == RAIL and p.label in wanted for p in fabric.ports), nothing
    if term.field == "port":
        return _mask(value in p.name.lower() or value == p.label for p in fabric.ports), nothing
    nodes = _mask(value in text for text in known.node_texts)
    return _mask(value in text for text in known.port_texts) | _of_ports(nodes, known), nodes


def _state(value: str, snapshot: Snapshot, known: Index) -> tuple[Mask, Mask]:
    wanted = [state for state in _STATES if state.startswith(value)]
    states = [snapshot.statuses.get(node.name) for node in snapshot.fabric.nodes]
    nodes = _mask(status is not None and status.state in wanted for status in states)
    ports = _of_ports(nodes, known)
    if "up" in wanted:
        ports = ports & (snapshot.up == 1) & ~snapshot.stale
    if "down" in wanted:
        ports = ports | (snapshot.up == 0)
    if "stale" in wanted:
        ports = ports | snapshot.stale
    return ports, nodes


def _of_jobs(term: Term, snapshot: Snapshot, known: Index) -> tuple[Mask, Mask]:
    """The hosts of jobs, the ports that these are cabled to, and the uplinks of their leaves where
    a job has hosts elsewhere too."""
    fabric, leaves = snapshot.fabric, snapshot.connections.leaves
    rows = {node.name: [port.row for port in node.ports] for node in fabric.nodes}
    names: set[str] = set()
    crossed: set[int] = set()
    for job in snapshot.jobs.jobs:
        if _names_job(term, job):
            own = snapshot.jobs.nodes_of(job)
            names.update(own)
            at = [frozenset(leaves.of[rows.get(name, [])].tolist()) - {NONE} for name in own]
            crossed |= frozenset().union(*at) if len(set(at)) > 1 else frozenset()
    nodes = _mask(node.name in names for node in fabric.nodes)
    ports = _of_ports(nodes, known)
    peers = [fabric.ports[row].peer for row in np.flatnonzero(ports).tolist()]
    ports[[peer for peer in peers if peer is not None]] = True
    switches = {leaves.names[each] for each in crossed}
    ports |= _mask(port.role == UPLINK and port.node in switches for port in fabric.ports)
    return ports, nodes


def _names_job(term: Term, job: Job) -> bool:
    if term.field == "job":
        return job.is_called(term.value) or (
            not term.value.isdecimal() and term.value in job.name.lower()
        )
    return term.value == str(getattr(job, term.field)).lower()


def _of_ports(nodes: Mask, known: Index) -> Mask:
    """[ports]: the value of each port's node."""
    masks: Mask = np.append(nodes, False)[known.owner]
    return masks


def _mask(values: Iterable[bool]) -> Mask:
    return np.fromiter(values, dtype=np.bool_)


_CONSTANT = ("role", "group", "node", "port", "rail")
"""Fields of a filter that do not change from tick to tick."""


class LinkSelection:
    """The ports of an export: those that match any of some filters, or all without filters.

    `unmatched` are the filters that no port has matched so far. Nodes that a `redactor` renamed are
    matched by their original names.
    """

    def __init__(self, filters: Sequence[str], redactor: Redactor | None = None) -> None:
        """Raises FilterError."""
        self._redactor = redactor
        self._original: tuple[Fabric, Fabric] | None = None
        self._filters = {text: parse(text) for text in filters}
        self._index: Index | None = None
        self.unmatched = list(self._filters)

    def __bool__(self) -> bool:
        return bool(self._filters)

    def of(self, snapshot: Snapshot) -> Mask | None:
        """[ports] whether a port matches in a snapshot; None for all ports."""
        if not self._filters:
            return None
        if self._redactor is not None:
            snapshot = self._with_original_names(snapshot, self._redactor)
        if self._index is None or self._index.fabric is not snapshot.fabric:
            self._index = index(snapshot.fabric)
        masks = {
            text: match(terms, snapshot, self._index).ports for text, terms in self._filters.items()
        }
        self.unmatched = [text for text in self.unmatched if not masks[text].any()]
        mask: Mask = np.logical_or.reduce(list(masks.values()))
        return mask

    def is_of_names(self, text: str) -> bool:
        """Whether a filter has no term that depends on what was measured: where such a filter
        matches nothing, nothing has the name."""
        return all(
            term.operator in ("", ":") and term.field != "state" and not term.negated
            for term in self._filters[text]
        )

    def near(self, text: str) -> list[str]:
        """Names of nodes, groups and ports, as they are shown, that are similar to the words of a
        filter."""
        if self._index is None or self._redactor is not None:
            return []
        texts = (*self._index.node_texts, *self._index.port_texts)
        names = list(dict.fromkeys(word for each in texts for word in each.split()))
        values = [term.value for term in self._filters[text]]
        return [each for value in values for each in nearest(value, names, 2)]

    def _with_original_names(self, snapshot: Snapshot, redactor: Redactor) -> Snapshot:
        """A snapshot with the names that nodes and groups had before redaction."""
        fabric, name, change = snapshot.fabric, redactor.original, msgspec.structs.replace
        if self._original is None or self._original[0] is not fabric:
            nodes = (change(n, name=name(n.name), group=name(n.group)) for n in fabric.nodes)
            ports = (change(port, node=name(port.node)) for port in fabric.ports)
            self._original = (fabric, change(fabric, nodes=tuple(nodes), ports=tuple(ports)))
        statuses = {name(node): status for node, status in snapshot.statuses.items()}
        return replace(snapshot, fabric=self._original[1], statuses=statuses)

    def check_constant(self) -> None:
        """Raise FilterError where the selected ports could change from tick to tick."""
        for terms in self._filters.values():
            for term in terms:
                if term.operator and term.field not in _CONSTANT:
                    raise FilterError(
                        f"{term.field}{term.operator}{term.value}: openmetrics exports whole "
                        f"series: choose links by {', '.join(f'{field}:' for field in _CONSTANT)}"
                    )
