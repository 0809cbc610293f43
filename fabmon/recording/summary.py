"""What a recording holds, in a few lines."""

from __future__ import annotations

import datetime
from collections import Counter

import msgspec

from fabmon.recording.reader import Recording


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Of one file. `frames` counts them by kind, `lost_bytes` are not readable."""

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
    nodes: int
    bookmarks: int
    findings: int
    closed: bool
    lost_bytes: int
    frames: dict[str, int]

    def text(self) -> str:
        """For a person."""
        span = "no ticks"
        if self.start is not None and self.end is not None:
            lasts = self.end - self.start
            span = f"{self.start:%Y-%m-%d %H:%M:%SZ} to {self.end:%Y-%m-%d %H:%M:%SZ} ({lasts})"
        state = "closed" if self.closed else "still written, or not closed"
        rows = [
            ("when", f"{span}, {self.ticks} ticks, one every {self.interval_s:g} s"),
            ("nodes", str(self.nodes)),
            ("size", f"{self.bytes / 1e6:.1f} MB, {state}"),
            ("noted", f"{self.findings} findings, {self.bookmarks} bookmarks"),
            ("by", f"{self.tool or '?'} on {self.recorder or '?'}, sessions: {self.sessions}"),
        ]
        if self.title:
            rows.insert(0, ("title", self.title))
        if self.lost_bytes:
            rows.append(("lost", f"{self.lost_bytes} bytes cannot be read; see fabmon verify"))
        return "\n".join([self.path, *(f"  {name:<6} {text}" for name, text in rows)])


def summary(recording: Recording) -> Summary:
    """Of a recording, without reading its counters."""
    notes = recording.notes()
    session = recording.sessions[-1]
    return Summary(
        path=str(recording.path),
        bytes=recording.size,
        format=session.format,
        tool=session.tool,
        recorder=session.recorder,
        title=session.title,
        start=_date(recording.start_ns),
        end=_date(recording.until_ns),
        sessions=len(recording.sessions),
        interval_s=recording.interval_s,
        ticks=sum(1 for _ in recording.times()),
        nodes=len(recording.hosts),
        bookmarks=sum(note.kind == "bookmark" for note in notes),
        findings=sum(note.change == "open" for note in notes),
        closed=recording.is_closed,
        lost_bytes=sum(loss.end - loss.at for loss in recording.losses),
        frames=dict(sorted(Counter(e.header.kind for e in recording.entries()).items())),
    )


def _date(time_ns: int) -> datetime.datetime | None:
    return datetime.datetime.fromtimestamp(time_ns / 1e9, datetime.UTC) if time_ns else None
