"""What a run of events amounts to: who is watched, what they said last, what is wrong now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from fabmon.fabric.messages import Hello, Notice
from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.recording.records import EventsRecord, SessionRecord, StateRecord, digest


class State:
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
    def of(cls, record: StateRecord, hellos: Mapping[str, Hello]) -> State:
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
            known = self._digests[id(hello)] = (hello, digest(hello))
        return known[1]


def going_on(tick: Tick, opening: State, before: State | None) -> Tick:
    """The first tick after what was known, told with as much of it as was not known `before`."""
    again = {node for node, _ in tick.hellos}
    known = before or State(opening.session)
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


def left_behind(before: Iterable[str], now: Collection[str], time_ns: int) -> list[NodeStatus]:
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
