"""Which frames belong together, and which of them count."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fabmon.recording.frames import Kind
from fabmon.recording.index import Entry

_Told = list[tuple[int, Entry]]


class Span:
    """The blocks of one run of ticks: each holds some of the nodes."""

    def __init__(self, session: int, time_ns: int, until_ns: int, provisional: bool) -> None:
        self.session = session
        self.time_ns = time_ns
        self.until_ns = until_ns
        self.provisional = provisional
        self.parts: dict[int, Entry] = {}

    @property
    def worst(self) -> float:
        """Utilisation of the busiest link in it; NaN where the index does not say."""
        return max((each.worst for each in self.parts.values()), default=float("nan"))


class Arranged(NamedTuple):
    """Every frame where it is looked for; those of `events` with the number of their session.

    Events and spans are by time: between sessions of a file the clock may have been set back.
    `span_ends` is [spans], the latest end of each span and those before it, ns.
    """

    sessions: list[Entry]
    states: list[Entry]
    hellos: list[Entry]
    topologies: list[Entry]
    notes: list[Entry]
    minutes: list[Entry]
    events: _Told
    spans: list[Span]
    span_ends: NDArray[np.int64]

    def session_of(self, entry: Entry) -> int:
        """The number of a frame's session."""
        return max(0, bisect.bisect_right([each.at for each in self.sessions], entry.at) - 1)


def arrange(entries: Iterable[Entry]) -> Arranged:
    """All frames of a file, given in its order."""
    kinds: dict[str, _Told] = {}
    session = -1
    for entry in entries:
        session += entry.header.kind == Kind.SESSION
        kinds.setdefault(entry.header.kind, []).append((max(0, session), entry))
    spans = _spans(kinds.get(Kind.BLOCK, []))
    ends = np.maximum.accumulate(np.array([span.until_ns for span in spans], np.int64))

    def plain(kind: str) -> list[Entry]:
        return [entry for _, entry in kinds.get(kind, [])]

    return Arranged(
        sessions=plain(Kind.SESSION),
        states=plain(Kind.STATE),
        hellos=plain(Kind.HELLOS),
        topologies=plain(Kind.TOPOLOGY),
        notes=[entry for _, entry in _once(kinds.get(Kind.NOTE, []))],
        minutes=[entry for _, entry in _once(kinds.get(Kind.MINUTE, []))],
        events=_once(kinds.get(Kind.EVENTS, [])),
        spans=spans,
        span_ends=ends,
    )


def _once(entries: _Told) -> _Told:
    """Each only once: a writer that was killed while it tidied up leaves some twice."""
    kept = {
        (session, e.header.time_ns, e.header.part, e.header.crc): (session, e)
        for session, e in entries
    }
    return sorted(kept.values(), key=lambda each: (each[1].header.time_ns, each[0], each[1].at))


def _spans(entries: _Told) -> list[Span]:
    """Blocks by the ticks that they hold; provisional ones only where no settled one is."""
    spans: dict[tuple[int, int, int, bool], Span] = {}
    for session, entry in entries:
        head = entry.header
        key = (session, head.time_ns, head.until_ns, head.provisional)
        spans.setdefault(key, Span(*key)).parts[head.part] = entry
    settled = sorted(
        (s for s in spans.values() if not s.provisional), key=lambda s: (s.session, s.time_ns)
    )
    kept = list(settled)
    starts = [(s.session, s.time_ns) for s in settled]
    for span in spans.values():
        if span.provisional:
            place = bisect.bisect_right(starts, (span.session, span.time_ns)) - 1
            inside = (
                place >= 0
                and settled[place].session == span.session
                and span.until_ns <= settled[place].until_ns
            )
            if not inside:
                kept.append(span)
    return sorted(kept, key=lambda s: (s.time_ns, s.session))
