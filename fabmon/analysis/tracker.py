"""From conditions to findings: a finding opens once, is updated on change, and closes once."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

import msgspec

from fabmon.analysis.finding import Change, Condition, Finding, badness, list_order
from fabmon.analysis.thresholds import Seconds

_MAX_INTERVALS = 3
"""Intervals that a tick counts for at most. A clock that was set and a machine that slept let no
time pass in which a condition could have been seen."""

_CHANGE_TICKS = 3
"""Ticks running in which another cause of the family holds before a finding changes to it."""


_RECENT_TICKS = 3
"""Ticks of which the median loss is a moment's: it was no less in two of three."""


class FindingThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [findings]: how long any finding stays open, and how often it is updated."""

    close_after_s: Seconds
    wait_at_most_s: Seconds
    update_every_s: Seconds


class _OpenFinding:
    """`seen_ns` and `reported_ns` are by the tracker's own clock, `last_ns` by the wall clock.
    `idle_ns` is the time since `seen_ns` in which its ports were idle, as far as it counts."""

    def __init__(self, finding: Finding, now_ns: int, time_ns: int) -> None:
        self.finding = finding
        self.seen_ns = now_ns
        self.last_ns = time_ns
        self.idle_ns = 0
        self.reported_ns = now_ns
        self.reported_text = finding.text
        self.other_ticks = 0
        self._worst = finding
        self._recent = deque([finding], maxlen=_RECENT_TICKS)

    def update(self, finding: Finding) -> None:
        """Replace what holds, and keep the worst of what the last ticks lost in the median: a
        single one may be noise. Another cause begins anew."""
        recent = self._recent
        if finding.cause != self.finding.cause:
            recent.clear()
        recent.append(finding)
        level = sorted(each.lost for each in recent)[(len(recent) - 1) // 2]
        held = next(each for each in reversed(recent) if each.lost == level)
        if len(recent) < _RECENT_TICKS or badness(held) >= badness(self._worst):
            self._worst = held
        worst = None if self._worst is finding else self._worst
        self.finding = msgspec.structs.replace(finding, worst=worst)


class FindingTracker:
    """Knows which findings are open. Its detector decides whether a condition lasts long enough to
    open one.

    `families` are the families of causes by name: an open finding changes to another cause of its
    family when that holds at its subject and its own does not.
    """

    def __init__(
        self, thresholds: FindingThresholds, families: Mapping[str, str] | None = None
    ) -> None:
        self._families = families or {}
        self._close_after_ns = int(thresholds.close_after_s * 1e9)
        self._max_idle_ns = int(thresholds.wait_at_most_s * 1e9)
        self._update_every_ns = int(thresholds.update_every_s * 1e9)
        self._now_ns = 0
        self._time_ns: int | None = None
        self._open: dict[str, _OpenFinding] = {}

    def accept(
        self,
        conditions: Sequence[Condition],
        time_ns: int,
        interval_s: float,
        explained: Collection[str] = (),
        idle: Collection[str] = (),
    ) -> list[tuple[Change, Finding]]:
        """What opened, changed or closed at a tick, given all conditions that hold at it.

        `time_ns` is the wall clock; of what it moved since the last tick, three intervals count.
        Findings whose key is in `explained` close at once: another finding is their root cause.
        Those in `idle` stay open longer: while a job computes, what slows its traffic is not
        observable.
        """
        passed_ns = self._passed_ns(time_ns, interval_s)
        self._now_ns += passed_ns
        for key in idle:
            known = self._open.get(key)
            if known is not None and known.idle_ns < self._max_idle_ns:
                known.idle_ns += passed_ns
        changes: list[tuple[Change, Finding]] = []
        by_family = {self._place(known.finding): known for known in self._open.values()}
        holding = {condition.key for condition in conditions}
        for condition in conditions:
            known = by_family.get(self._place(condition))
            if known is None:
                finding = _finding(condition, time_ns, time_ns)
                opened = _OpenFinding(finding, self._now_ns, time_ns)
                self._open[finding.key] = by_family[self._place(finding)] = opened
                changes.append((Change.OPEN, finding))
                continue
            known.seen_ns, known.last_ns, known.idle_ns = self._now_ns, time_ns, 0
            before = known.finding
            is_other = condition.cause != before.cause
            if is_other and f"{before.cause}:{before.subject}" in holding:
                continue
            known.other_ticks = known.other_ticks + 1 if is_other else 0
            if is_other and known.other_ticks < _CHANGE_TICKS:
                continue
            opened_as = (before.opened_as or before.cause) if is_other else before.opened_as
            known.other_ticks = 0
            known.update(_finding(condition, before.since_ns, time_ns, opened_as))
            is_due = self._now_ns - known.reported_ns >= self._update_every_ns
            if is_other or (is_due and known.finding.text != known.reported_text):
                known.reported_ns, known.reported_text = self._now_ns, known.finding.text
                changes.append((Change.UPDATE, known.finding))
        return changes + self._close(explained)

    def open(self) -> tuple[Finding, ...]:
        """The open findings, in `list_order`."""
        return tuple(sorted((known.finding for known in self._open.values()), key=list_order))

    def _place(self, condition: Condition) -> tuple[str, str]:
        return self._families.get(condition.cause) or condition.cause, condition.subject

    def _passed_ns(self, time_ns: int, interval_s: float) -> int:
        before_ns, self._time_ns = self._time_ns, time_ns
        if before_ns is None:
            return 0
        return min(max(time_ns - before_ns, 0), int(_MAX_INTERVALS * interval_s * 1e9))

    def _close(self, explained: Collection[str]) -> list[tuple[Change, Finding]]:
        gone = [
            key
            for key, known in self._open.items()
            if known.seen_ns != self._now_ns
            and (
                not {key, f"{known.finding.cause}:{known.finding.subject}"}.isdisjoint(explained)
                or self._now_ns - known.seen_ns - known.idle_ns >= self._close_after_ns
            )
        ]
        closed = []
        for key in gone:
            known = self._open.pop(key)
            finding = msgspec.structs.replace(known.finding, until_ns=known.last_ns)
            closed.append((Change.CLOSE, finding))
        return closed


def _finding(condition: Condition, since_ns: int, seen_ns: int, opened_as: str = "") -> Finding:
    fields = {name: getattr(condition, name) for name in condition.__struct_fields__}
    return Finding(since_ns=since_ns, seen_ns=seen_ns, opened_as=opened_as, **fields)
