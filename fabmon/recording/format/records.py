"""JSON of a recording, which somebody else may have made: its texts are as they may be shown."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.wire.messages import Hello, Notice, printable

T = TypeVar("T")

_MAY_BE_CONTROL = re.compile(r'\\[^"\\/]')


def decode_sanitised(data: bytes, kind: type[T]) -> T:
    """What a JSON document holds; of its texts what is not printable becomes `?`.

    Raises msgspec.DecodeError, UnicodeDecodeError.
    """
    text = data.decode()
    # What fabmon writes has been cleaned before: looking at it whole is all that it costs.
    if text.isprintable() and not _MAY_BE_CONTROL.search(text):
        return msgspec.json.decode(text, type=kind)
    cleaned = msgspec.json.encode(_clean(msgspec.json.decode(text)))
    return msgspec.json.decode(cleaned, type=kind)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value


# The records of a recording that are JSON: who was watched, what happened, what was noted.


FORMAT = (1, 0)
"""Major and minor: a later major is refused, a later minor is read as far as it is known."""


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a recorder watched, from where, and how often.

    `run_ns` is when the run began: files of a rotation are of one run. 0 where that is when the
    session did.
    """

    format: tuple[int, int] = FORMAT
    started_ns: int
    interval_s: float
    hosts: tuple[Host, ...]
    tool: str = ""
    recorder: str = ""
    title: str = ""
    run_ns: int = 0


class EventsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All of a tick that is not counters."""

    seq: int
    time_ns: int
    hosts: tuple[Host, ...] = ()
    hellos: tuple[tuple[str, Hello], ...] = ()
    statuses: tuple[NodeStatus, ...] = ()
    notices: tuple[tuple[str, Notice], ...] = ()


class StateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """All that the events up to and with tick `seq` amount to; `hellos` are by digest."""

    session: SessionRecord
    seq: int
    time_ns: int
    hosts: tuple[Host, ...]
    hellos: tuple[tuple[str, str], ...]
    statuses: tuple[NodeStatus, ...]
    notices: tuple[tuple[str, Notice], ...]


class PortRecord(msgspec.Struct, frozen=True):
    """A port as the fabric had it; `row` is its place in the minutes' arrays."""

    row: int
    node: str
    name: str
    label: str
    role: str
    kind: str
    peer: int | None


class TopologyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How the fabric was cabled from a time on; `groups` are equal-cost ports, by row."""

    version: int
    ports: tuple[PortRecord, ...]
    groups: tuple[tuple[str, tuple[int, ...]], ...]


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something with a time: `kind` is `bookmark` or `finding`, `change` what a finding did.

    `finding` is the finding as it was told then, `ports` the names of its ports.
    """

    kind: str
    time_ns: int
    seq: int
    text: str
    change: str = ""
    ports: tuple[str, ...] = ()
    finding: dict[str, Any] = {}


def hello_digest(hello: Hello) -> str:
    """What a hello is known by in a StateRecord."""
    return hashlib.blake2b(msgspec.json.encode(hello), digest_size=8).hexdigest()


# What a run of events amounts to: who is watched, what they said last, what is wrong now.


class RecordedState:
    """Takes events in their order; gives them back as one tick that amounts to the same."""

    def __init__(self, session: SessionRecord) -> None:
        self.session = session
        self.hosts: dict[str, Host] = {}
        self.hellos: dict[str, Hello] = {}
        self.statuses: dict[str, NodeStatus] = {}
        self._notices: dict[str, dict[tuple[str, str, str], Notice]] = {}
        self._digests: dict[int, tuple[Hello, str]] = {}

    def apply(self, events: EventsRecord | Tick) -> None:
        """Take what happened at one tick."""
        self.hosts |= {host.name: host for host in events.hosts}
        for node, hello in events.hellos:
            self.hellos[node] = hello
            self._notices.pop(node, None)
        self.statuses |= {status.node: status for status in events.statuses}
        for node, notice in events.notices:
            told = self._notices.setdefault(node, {})
            key = (notice.source, notice.object, notice.metric)
            if notice.event == "recovered":
                told.pop(key, None)
            else:
                told[key] = notice

    @property
    def notices(self) -> tuple[tuple[str, Notice], ...]:
        """What is wrong, by node."""
        return tuple((node, each) for node, told in self._notices.items() for each in told.values())

    def noticed(self, node: str) -> list[Notice]:
        """What is wrong on a node."""
        return list(self._notices.get(node, {}).values())

    def tick(self, seq: int, time_ns: int) -> Tick:
        """One tick that tells all of it."""
        return Tick(
            seq,
            time_ns,
            hellos=tuple(self.hellos.items()),
            statuses=tuple(self.statuses.values()),
            notices=self.notices,
            hosts=tuple(self.hosts.values()),
        )

    def record(self, seq: int, time_ns: int) -> tuple[StateRecord, dict[str, Hello]]:
        """As it is recorded, and the hellos that it names."""
        named = {node: self._digest(hello) for node, hello in self.hellos.items()}
        record = StateRecord(
            session=self.session,
            seq=seq,
            time_ns=time_ns,
            hosts=tuple(self.hosts.values()),
            hellos=tuple(named.items()),
            statuses=tuple(self.statuses.values()),
            notices=self.notices,
        )
        return record, {name: self.hellos[node] for node, name in named.items()}

    @classmethod
    def of(cls, record: StateRecord, hellos: Mapping[str, Hello]) -> RecordedState:
        """From a record; a node whose hello is lost has none."""
        state = cls(record.session)
        state.apply(
            EventsRecord(
                seq=record.seq,
                time_ns=record.time_ns,
                hosts=record.hosts,
                hellos=_known(record.hellos, hellos),
                statuses=record.statuses,
                notices=record.notices,
            )
        )
        return state

    def _digest(self, hello: Hello) -> str:
        known = self._digests.get(id(hello))
        if known is None or known[0] is not hello:
            if len(self._digests) > 4 * len(self.hellos) + 64:
                self._digests = {}
            known = self._digests[id(hello)] = (hello, hello_digest(hello))
        return known[1]


def with_opening_state(tick: Tick, opening: RecordedState, before: RecordedState | None) -> Tick:
    """The first tick after what was known, told with as much of it as was not known `before`."""
    again = {node for node, _ in tick.hellos}
    known = before or RecordedState(opening.session)
    changed = {
        node
        for node in {*opening.hellos, *dict(opening.notices)} - again
        if known.hellos.get(node) != opening.hellos.get(node)
        or known.noticed(node) != opening.noticed(node)
    }
    hosts = tuple(h for name, h in opening.hosts.items() if known.hosts.get(name) != h)
    statuses = tuple(s for node, s in opening.statuses.items() if known.statuses.get(node) != s)
    return msgspec.structs.replace(
        tick,
        hosts=(*hosts, *tick.hosts),
        hellos=(*((n, h) for n, h in opening.hellos.items() if n in changed), *tick.hellos),
        statuses=(*statuses, *tick.statuses),
        notices=(*(each for each in opening.notices if each[0] in changed), *tick.notices),
    )


def lost_statuses(before: Iterable[str], now: Collection[str], time_ns: int) -> list[NodeStatus]:
    """States of the nodes that a session before watched, and the one now does not."""
    return [
        NodeStatus(name, NodeState.LOST, time_ns, "not in this recording", "not recorded")
        for name in before
        if name not in now
    ]


def _known(
    named: Sequence[tuple[str, str]], hellos: Mapping[str, Hello]
) -> tuple[tuple[str, Hello], ...]:
    return tuple((node, hellos[name]) for node, name in named if name in hellos)
