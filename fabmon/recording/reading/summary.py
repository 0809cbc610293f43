"""`fabmon info`: the content of a recording in a few lines."""

from __future__ import annotations

import datetime
from collections import Counter

import msgspec
import numpy as np

from fabmon.fabric.tick import STALE_READS
from fabmon.fabric.time_wording import SECOND_NS, duration, interval, utc
from fabmon.fabric.wire.messages import printable
from fabmon.fabric.wording import byte_count, plural
from fabmon.recording.format.records import Note
from fabmon.recording.reading.reader import Recording

NOT_CHECKED = "not checked for damage, which takes long: run fabmon verify"
_EVENTS_SHOWN = 30
_LOSSES_SHOWN = 5
_GAPS_SHOWN = 5


class SummaryEvent(msgspec.Struct, frozen=True):
    """A bookmark, or a finding that opened.

    `number` N is the event that `event N` means where a time is expected. `since` is when the
    finding began, before `time` where it was open at the start of the recording; else None.
    """

    number: int
    time: datetime.datetime
    text: str
    since: datetime.datetime | None = None


class LostPart(msgspec.Struct, frozen=True):
    """Bytes of a file that cannot be read, and why."""

    offset: int
    end: int
    text: str


class Gap(msgspec.Struct, frozen=True):
    """A time without ticks, as between the sessions of a recording that was continued: from the
    tick before it to the tick after it."""

    start: datetime.datetime
    end: datetime.datetime


class RecordingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one file. `frames` counts frames by kind. `lost` is what cannot be read, as
    far as it was noticed; `checked` says whether all checksums were compared. `lost_bytes` are its
    bytes."""

    path: str
    bytes: int
    format: tuple[int, int]
    tool: str
    recorder: str
    title: str
    start: datetime.datetime | None
    end: datetime.datetime | None
    sessions: int
    interval_s: float
    ticks: int
    gaps: tuple[Gap, ...]
    nodes: int
    bookmarks: int
    findings: int
    events: tuple[SummaryEvent, ...]
    closed: bool
    lost_bytes: int
    lost: tuple[LostPart, ...]
    checked: bool
    frames: dict[str, int]

    def text(self) -> str:
        """The summary as lines for a person."""
        why = "can be read" if self.lost else "is recorded"
        span = f"no tick {why}: no time is known"
        if self.start is not None and self.end is not None:
            lasts = datetime.timedelta(seconds=round((self.end - self.start).total_seconds()))
            span = (
                f"{self.start:%Y-%m-%d %H:%M:%SZ} to {self.end:%Y-%m-%d %H:%M:%SZ} ({lasts}),"
                f" {plural(self.ticks, 'tick')}, one every {interval(self.interval_s)}"
            )
        state = "complete" if self.closed else "being written, or the recorder was killed"
        # The end of a file that grows may be a frame in progress.
        if any(self.closed or each.end != self.bytes for each in self.lost):
            state = "damaged" if self.closed else f"damaged, {state}"
        rows = [
            ("time", span),
            ("nodes", str(self.nodes)),
            ("size", f"{byte_count(self.bytes)}, {state}"),
            ("events", f"findings: {self.findings}, bookmarks: {self.bookmarks}"),
            ("by", f"{self.tool or '?'} on {self.recorder or '?'}, sessions: {self.sessions}"),
        ]
        gaps = [
            f"{each.start:%m-%d %H:%M:%SZ} to {each.end:%m-%d %H:%M:%SZ}"
            f" ({duration((each.end - each.start).total_seconds())})"
            for each in self.gaps[:_GAPS_SHOWN]
        ]
        if gaps:
            more = len(self.gaps) - _GAPS_SHOWN
            gaps += [f"and {more} more: --format json lists all of them"] if more > 0 else []
            rows[1:1] = [("gap" if len(self.gaps) == 1 else "gaps", "; ".join(gaps))]
        if self.title:
            rows.insert(0, ("title", self.title))
        if self.lost_bytes:
            places = "; ".join(each.text for each in self.lost[:_LOSSES_SHOWN])
            more = len(self.lost) - _LOSSES_SHOWN
            places += f"; and {more} more: run fabmon verify" if more > 0 else ""
            rows.append(("damage", f"{self.lost_bytes} bytes are lost: {places}"))
        if not self.checked:
            rows.append(("", NOT_CHECKED))
        shown, more = self.events[:_EVENTS_SHOWN], len(self.events) - _EVENTS_SHOWN
        for each in shown:
            since = "" if each.since is None else f"open since {each.since:%m-%d %H:%M:%SZ}: "
            text = f"{each.time:%m-%d %H:%M:%SZ}  {since}{each.text}"
            rows.append((f"event {each.number}", text))
        if more > 0:
            rows.append(("", f"and {more} more: --format json lists all of them"))
        return "\n".join([self.path, *(f"  {name:<6} {text}" for name, text in rows)])


def summarise(recording: Recording) -> RecordingSummary:
    """The summary of a recording, without decoding its counters."""
    notes = recording.notes()
    events = [note for note in notes if note.change in ("", "open")]
    session = recording.sessions[-1]
    times_ns = [time_ns for time_ns, _ in recording.times()]
    return RecordingSummary(
        path=printable(str(recording.path)),
        bytes=recording.size,
        format=session.format,
        tool=session.tool,
        recorder=session.recorder,
        title=session.title,
        start=utc(min(times_ns)) if times_ns else None,
        end=utc(max(times_ns)) if times_ns else None,
        sessions=len(recording.sessions),
        interval_s=recording.interval_s,
        ticks=len(times_ns),
        gaps=_gaps(recording, times_ns),
        nodes=len(recording.hosts),
        bookmarks=sum(note.kind == "bookmark" for note in notes),
        findings=sum(note.change == "open" for note in notes),
        events=tuple(
            SummaryEvent(number, utc(note.time_ns), note.text, _since(note))
            for number, note in enumerate(events, 1)
        ),
        closed=recording.is_closed,
        lost_bytes=sum(loss.end - loss.offset for loss in recording.losses),
        lost=tuple(LostPart(each.offset, each.end, each.text) for each in recording.losses),
        checked=recording.is_checked,
        frames=dict(sorted(Counter(e.header.kind for e in recording.entries()).items())),
    )


def _gaps(recording: Recording, times_ns: list[int]) -> tuple[Gap, ...]:
    """The times without ticks, by time: longer than what makes a sample stale, at the longest
    interval of the sessions."""
    longest_ns = max(each.interval_s for each in recording.sessions) * STALE_READS * SECOND_NS
    by_time = np.sort(np.array(times_ns, np.int64))
    return tuple(
        Gap(utc(int(by_time[place])), utc(int(by_time[place + 1])))
        for place in np.flatnonzero(np.diff(by_time) > longest_ns)
    )


def _since(note: Note) -> datetime.datetime | None:
    """When the finding of a note began, if that was before the note."""
    since_ns = note.finding.get("since_ns")
    if isinstance(since_ns, int) and 0 <= since_ns < note.time_ns:
        return utc(since_ns)
    return None
