"""The JSON records of a recording."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from fabmon.fabric.flows.sampled import FlowSamples
from fabmon.fabric.jobs.collectives import CollectiveReport
from fabmon.fabric.jobs.job import JobReport
from fabmon.fabric.model import Host
from fabmon.fabric.node_metadata import NodeMetadata
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.time_wording import TimeNs
from fabmon.fabric.wire.hello_limits import LONGEST_INTERVAL_S
from fabmon.fabric.wire.messages import Frame, Hello, Notice, printable, with_texts
from fabmon.recording.format.errors import Damaged

T = TypeVar("T")

FORMAT = (1, 0)
"""Major and minor version of the format. A reader refuses a later major; of a later minor it reads
what it knows."""

MOST_TICKS = 1 << 53
TickNumber = Annotated[int, msgspec.Meta(ge=0, le=MOST_TICKS)]
"""The number of a tick: more than any feed counts to, and exact as a float."""

SUFFIX = ".fabrec"
"""How the names of recordings end."""

_MAX_SANITISED_BYTES = 1 << 27
"""The largest document, by `memory_estimate`, in which characters are replaced one by one."""

_ESCAPE = re.compile(r'\\[^"\\/]')
"""An escape in JSON that may stand for a control character."""


class SessionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a recorder watched, from where, and at which interval.

    `run_ns` is when the run began, which all files of a rotation share; 0 means at `started_ns`.
    """

    format: tuple[int, int] = FORMAT
    started_ns: TimeNs
    interval_s: Annotated[float, msgspec.Meta(ge=1e-3, le=LONGEST_INTERVAL_S)]
    hosts: tuple[Host, ...]
    tool: str = ""
    recorder: str = ""
    title: str = ""
    run_ns: TimeNs = 0

    @property
    def run_started_ns(self) -> int:
        """When the run of this session began, ns since 1970, UTC."""
        return self.run_ns or self.started_ns


class EventsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything in a tick except counters."""

    seq: TickNumber
    time_ns: TimeNs
    hosts: tuple[Host, ...] = ()
    hellos: tuple[tuple[str, Hello], ...] = ()
    statuses: tuple[NodeStatus, ...] = ()
    notices: tuple[tuple[str, Notice], ...] = ()
    # Left out where there are none, as in older recordings.
    sampled: tuple[FlowSamples, ...] | msgspec.UnsetType = msgspec.UNSET
    jobs: JobReport | msgspec.UnsetType = msgspec.UNSET
    collectives: CollectiveReport | msgspec.UnsetType = msgspec.UNSET
    jobs_read_ns: TimeNs | msgspec.UnsetType = msgspec.UNSET

    @classmethod
    def of(cls, tick: Tick) -> EventsRecord | None:
        """The events of a tick; None where it has none."""
        events = (tick.hosts, tick.hellos, tick.statuses, tick.notices, tick.sampled, tick.jobs)
        if not any((*events, tick.collectives, tick.jobs_read_ns)):
            return None
        return cls(
            seq=tick.seq,
            time_ns=tick.time_ns,
            hosts=tick.hosts,
            hellos=tick.hellos,
            statuses=tick.statuses,
            notices=tick.notices,
            sampled=tick.sampled or msgspec.UNSET,
            jobs=tick.jobs or msgspec.UNSET,
            collectives=tick.collectives or msgspec.UNSET,
            jobs_read_ns=tick.jobs_read_ns or msgspec.UNSET,
        )

    def tick(self, frames: tuple[tuple[str, Frame], ...] = ()) -> Tick:
        """The tick with these events and some frames."""
        return Tick(
            self.seq,
            self.time_ns,
            hellos=self.hellos,
            frames=frames,
            statuses=self.statuses,
            notices=self.notices,
            hosts=self.hosts,
            sampled=self.sampled or (),
            jobs=self.jobs or None,
            collectives=self.collectives or None,
            jobs_read_ns=self.jobs_read_ns or 0,
        )


class StateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The result of all events up to and including tick `seq`; hellos are named by their digest."""

    session: SessionRecord
    seq: TickNumber
    time_ns: TimeNs
    hosts: tuple[Host, ...]
    hellos: tuple[tuple[str, str], ...]
    statuses: tuple[NodeStatus, ...]
    notices: tuple[tuple[str, Notice], ...]
    jobs: JobReport | msgspec.UnsetType = msgspec.UNSET
    collectives: CollectiveReport | msgspec.UnsetType = msgspec.UNSET


class PortRecord(msgspec.Struct, frozen=True):
    """A port of the fabric; `row` is its place in the arrays of minutes."""

    row: Annotated[int, msgspec.Meta(ge=0, le=2**31)]
    node: str
    name: str
    label: str
    role: str
    kind: str
    peer: int | None


class TopologyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The cabling of the fabric from a time on; `groups` are equal-cost ports, by row."""

    version: int
    ports: tuple[PortRecord, ...]
    groups: tuple[tuple[str, tuple[int, ...]], ...]


class NotedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a note's finding that commands read whichever fabmon wrote them."""

    cause: str = ""
    opened_as: str = ""
    subject: str = ""
    severity: str = ""
    text: str = ""
    since_ns: TimeNs = 0
    until_ns: TimeNs | None = None
    seen_ns: TimeNs | None = None
    worst: NotedFinding | None = None


PARTLY_ANALYSED = "partly_analysed"
"""Key of a stored finding, true where not every tick since it began was analysed: who computes it
again from every tick may find another worst moment."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A bookmark or a change of a finding.

    `kind` is `bookmark` or `finding`, `change` is `open`, `update` or `close` for a finding and
    empty for a bookmark. `finding` is the finding as it was reported at the time, `ports` are the
    ids of its ports.
    """

    kind: str
    time_ns: TimeNs
    seq: TickNumber
    text: str
    change: str = ""
    ports: tuple[str, ...] = ()
    finding: dict[str, Any] = {}


def memory_estimate(document: bytes) -> int:
    """About the most bytes of memory that the values of a JSON document take, without making them.

    An object takes 200 bytes at most, a list 90, an item of either 60, and a key 40.
    """
    count = document.count
    return (
        len(document) + 200 * count(b"{") + 90 * count(b"[") + 60 * count(b",") + 40 * count(b":")
    )


def decode_sanitised(data: bytes, kind: type[T]) -> T:
    """The value of a JSON document, with `?` for every character that is not printable.

    A recording may come from another site, and its texts are shown on the terminal. Raises
    msgspec.DecodeError or UnicodeDecodeError, RecursionError for values nested too deeply, and
    Damaged for a document with unprintable characters that is too large to replace them.
    """
    value = msgspec.json.decode(data, type=kind)
    text = data.decode()
    # fabmon sanitises texts before it writes them: such a document costs only this look.
    if text.isprintable() and not _ESCAPE.search(text):
        return value
    if memory_estimate(data) > _MAX_SANITISED_BYTES:
        raise Damaged("a large record has unprintable characters")
    sanitised = msgspec.json.encode(with_texts(msgspec.json.decode(text), printable))
    return msgspec.json.decode(sanitised, type=kind)


class RecordedState(NodeMetadata):
    """The metadata of nodes at a time of a session."""

    def __init__(self, session: SessionRecord) -> None:
        super().__init__()
        self.session = session
        self._digests: dict[int, tuple[Hello, str]] = {}

    def tick(self, seq: int, time_ns: int) -> Tick:
        """One tick with all of the metadata."""
        return Tick(seq, time_ns, **self.fields())

    def record(self, seq: int, time_ns: int) -> tuple[StateRecord, dict[str, Hello]]:
        """The record of this state, and the hellos that it names, by digest."""
        named = {node: self._digest(hello) for node, hello in self.hellos.items()}
        fields = self.fields() | {"hellos": tuple(named.items())}
        for name in ("jobs", "collectives"):
            fields[name] = fields[name] or msgspec.UNSET
        record = StateRecord(session=self.session, seq=seq, time_ns=time_ns, **fields)
        return record, {name: self.hellos[node] for node, name in named.items()}

    @classmethod
    def of(cls, record: StateRecord, hellos: Mapping[str, Hello]) -> RecordedState:
        """The state of a record; a node whose hello is missing in `hellos` has none."""
        state = cls(record.session)
        state.apply(
            Tick(
                record.seq,
                record.time_ns,
                hosts=record.hosts,
                hellos=tuple((n, hellos[name]) for n, name in record.hellos if name in hellos),
                statuses=record.statuses,
                notices=record.notices,
                jobs=record.jobs or None,
                collectives=record.collectives or None,
            )
        )
        return state

    def _digest(self, hello: Hello) -> str:
        """The name of a hello in a StateRecord, cached by identity."""
        known = self._digests.get(id(hello))
        if known is None or known[0] is not hello:
            if len(self._digests) > 4 * len(self.hellos) + 64:
                self._digests = {}
            digest = hashlib.blake2b(msgspec.json.encode(hello), digest_size=8).hexdigest()
            known = self._digests[id(hello)] = (hello, digest)
        return known[1]


def with_opening_state(tick: Tick, opening: RecordedState, before: RecordedState | None) -> Tick:
    """The first tick of a file, extended by what was not known `before` of its opening state."""
    again = {node for node, _ in tick.hellos}
    known = before or RecordedState(opening.session)
    changed = {
        node
        for node in {*opening.hellos, *dict(opening.notices)} - again
        if known.hellos.get(node) != opening.hellos.get(node)
        or known.notices_of(node) != opening.notices_of(node)
    }
    hosts = tuple(h for name, h in opening.hosts.items() if known.hosts.get(name) != h)
    statuses = tuple(s for node, s in opening.statuses.items() if known.statuses.get(node) != s)
    return msgspec.structs.replace(
        tick,
        hosts=(*hosts, *tick.hosts),
        hellos=(*((n, h) for n, h in opening.hellos.items() if n in changed), *tick.hellos),
        statuses=(*statuses, *tick.statuses),
        notices=(*(each for each in opening.notices if each[0] in changed), *tick.notices),
        jobs=tick.jobs or (opening.jobs if opening.jobs != known.jobs else None),
        collectives=tick.collectives
        or (opening.collectives if opening.collectives != known.collectives else None),
    )


def lost_statuses(
    before: Iterable[str], now: Collection[str], time_ns: int
) -> Sequence[NodeStatus]:
    """A status LOST for every node that the session before watched and the current one does not."""
    return [
        NodeStatus(name, NodeState.LOST, time_ns, "not in this recording", "not recorded")
        for name in before
        if name not in now
    ]
