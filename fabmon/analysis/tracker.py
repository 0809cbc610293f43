"""From conditions to findings: a finding opens once, is updated on change, and closes once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

import msgspec

from fabmon.analysis.finding import (
    OPENED,
    Change,
    Condition,
    Evidence,
    Finding,
    badness,
    from_stored,
    list_order,
    times_opened,
    with_worst,
)
from fabmon.analysis.thresholds import Seconds
from fabmon.fabric.moved_times import moved

Begins = Callable[[int], Mapping[str, Mapping[str, Any]]]
"""From a time to findings by key, as recordings hold them (to_stored), each with its begin."""

_MAX_INTERVALS = 3
"""Intervals that a tick counts for at most. A clock that was set and a machine that slept let no
time pass in which a condition could have been seen."""

_MAX_CLOSED = 16_384
"""Closed findings whose openings are counted, the newest: as many as are open at once."""

_CHANGE_TICKS = 3
"""Ticks running in which another cause of the family holds before a finding changes to it."""


_RECENT_TICKS = 3
"""Ticks of which the median loss is a moment's: it was no less in two of three."""


class FindingThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [findings]: how long any finding stays open, and how often it is updated."""

    close_after_s: Seconds
    reopen_within_s: Seconds
    wait_at_most_s: Seconds
    update_every_s: Seconds


class _OpenFinding:
    """`seen_ns` and `reported_ns` are by the tracker's own clock, `last_ns` by the wall clock.
    `idle_ns` is the time since `seen_ns` in which its ports were idle, as far as it counts. A
    `finding` with a worst moment was open before: that moment stays known."""

    def __init__(self, finding: Finding, now_ns: int, time_ns: int) -> None:
        self.finding = finding
        self.seen_ns = now_ns
        self.last_ns = time_ns
        self.idle_ns = 0
        self.reported_ns = now_ns
        self.reported_text = finding.text
        self.other_ticks = 0
        self.times = times_opened(finding)
        self._earlier = finding.worst
        self._worst = finding.worst or finding
        self._recent = deque([finding], maxlen=_RECENT_TICKS)

    def move(self, by_ns: int) -> None:
        """The wall clock was set: its age stays."""
        self.last_ns += by_ns
        self.finding, self._worst = moved(self.finding, by_ns), moved(self._worst, by_ns)
        self._earlier = None if self._earlier is None else moved(self._earlier, by_ns)
        self._recent = deque([moved(each, by_ns) for each in self._recent], _RECENT_TICKS)

    def update(self, finding: Finding) -> None:
        """Replace what holds, and keep the worst of what the last ticks lost in the median: of a
        single one, which may be noise, no more than now is said. Another cause begins anew."""
        recent = self._recent
        if finding.cause != self.finding.cause:
            recent.clear()
            self._earlier = None
        recent.append(finding)
        level = sorted(each.lost for each in recent)[(len(recent) - 1) // 2]
        held = next(each for each in reversed(recent) if each.lost == level)
        if len(recent) < _RECENT_TICKS or badness(held) >= badness(self._worst):
            self._worst = held
        if self._earlier is not None:
            self._worst = max(self._worst, self._earlier, key=badness)
        self.finding = with_worst(finding, self._worst)


class FindingTracker:
    """Knows which findings are open. Its detector decides whether a condition lasts long enough to
    open one.

    `families` are the families of causes by name: an open finding changes to another cause of its
    family when that holds at its subject and its own does not. `begins` returns for a time the
    recorded findings that are computed again: those that were open then, of which begin and worst
    moment are taken up, and those that begin within seconds, which open no earlier.
    """

    def __init__(
        self,
        thresholds: FindingThresholds,
        families: Mapping[str, str] | None = None,
        begins: Begins | None = None,
    ) -> None:
        self._families = families or {}
        self._begins = begins or (lambda _: {})
        self._close_after_ns = int(thresholds.close_after_s * 1e9)
        self._max_idle_ns = int(thresholds.wait_at_most_s * 1e9)
        self._update_every_ns = int(thresholds.update_every_s * 1e9)
        self._now_ns = 0
        self._time_ns: int | None = None
        self._open: dict[str, _OpenFinding] = {}
        self._reopen_within_ns = int(thresholds.reopen_within_s * 1e9)
        self._closed: dict[tuple[str, str], tuple[int, int]] = {}
        """By place: when a finding closed, by the tracker's own clock, and how often it opened."""

    def accept(
        self,
        conditions: Sequence[Condition],
        time_ns: int,
        interval_s: float,
        explained: Collection[str] = (),
        idle: Collection[str] = (),
        not_judged: Collection[str] = (),
    ) -> list[tuple[Change, Finding]]:
        """What opened, changed or closed at a tick, given all conditions that hold at it.

        `time_ns` is the wall clock; of what it moved since the last tick, three intervals count.
        Findings whose key is in `explained` close at once: another finding is their root cause.
        Those in `idle` stay open longer: while a job computes, what slows its traffic is not
        observable. Those in `not_judged` stay open.
        """
        if self._time_ns is None:
            # What an earlier run found may be later than now: the clock was set meanwhile.
            for each in self._open.values():
                each.move(min(0, time_ns - each.last_ns, time_ns - each.finding.since_ns))
        passed_ns = self._passed_ns(time_ns, interval_s)
        self._now_ns += passed_ns
        for key in idle:
            known = self._open.get(key)
            if known is not None and known.idle_ns < self._max_idle_ns:
                known.idle_ns += passed_ns
        for key in not_judged:
            if key in self._open:
                self._open[key].seen_ns = self._now_ns
        changes: list[tuple[Change, Finding]] = []
        by_family = {self._place(known.finding): known for known in self._open.values()}
        holding = {condition.key for condition in conditions}
        for condition in conditions:
            known = by_family.get(self._place(condition))
            if known is None:
                recorded = self._recorded(condition, time_ns)
                since_ns = recorded.get("since_ns", time_ns)
                if since_ns > time_ns:
                    continue
                _, times = self._closed.pop(self._place(condition), (0, 0))
                finding = _finding(condition, since_ns, time_ns, times=times + 1)
                worst = _recorded_worst(recorded, condition.cause)
                finding = finding if worst is None else with_worst(finding, worst)
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
            known.update(_finding(condition, before.since_ns, time_ns, opened_as, known.times))
            is_due = self._now_ns - known.reported_ns >= self._update_every_ns
            if is_other or (is_due and known.finding.text != known.reported_text):
                known.reported_ns, known.reported_text = self._now_ns, known.finding.text
                changes.append((Change.UPDATE, known.finding))
        return changes + self._close(explained)

    def take_up(self, findings: Iterable[Finding]) -> None:
        """Findings that are open already, in place of those with the same key; not one at the place
        of another that is open."""
        keys = {self._place(each.finding): key for key, each in self._open.items()}
        for each in findings:
            if keys.get(self._place(each), each.key) != each.key:
                continue
            last_ns = each.since_ns if each.seen_ns is None else each.seen_ns
            self._open[each.key] = _OpenFinding(each, self._now_ns, last_ns)

    def follow_clock(self, jumped_ns: int) -> None:
        """The wall clock was set by so much since the last tick."""
        for known in self._open.values():
            known.move(jumped_ns)
        if self._time_ns is not None:
            self._time_ns += jumped_ns

    def open(self) -> tuple[Finding, ...]:
        """The open findings, in `list_order`."""
        return tuple(sorted((known.finding for known in self._open.values()), key=list_order))

    def _recorded(self, condition: Condition, time_ns: int) -> Mapping[str, Any]:
        """The recorded finding that a condition is one of; empty where it begins now."""
        family = self._families.get(condition.cause)
        causes = [name for name, own in self._families.items() if own == family]
        begins = self._begins(time_ns)
        keys = (f"{cause}:{condition.subject}" for cause in (condition.cause, *causes))
        return next((begins[key] for key in keys if key in begins), {})

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
        begin_ns = self._now_ns - self._reopen_within_ns
        recent = [each for each in self._closed.items() if each[1][0] > begin_ns]
        self._closed = dict(recent[-_MAX_CLOSED:])
        closed = []
        for key in gone:
            known = self._open.pop(key)
            self._closed[self._place(known.finding)] = self._now_ns, known.times
            finding = msgspec.structs.replace(known.finding, until_ns=known.last_ns)
            closed.append((Change.CLOSE, finding))
        return closed


def _finding(
    condition: Condition, since_ns: int, seen_ns: int, opened_as: str = "", times: int = 1
) -> Finding:
    """The finding of a condition, without evidence and losses that are no number: JSON has none for
    them, and they have no place in an order."""
    fields = {name: getattr(condition, name) for name in condition.__struct_fields__}
    evidence = [
        each for each in condition.evidence if isinstance(each.value, str) or isfinite(each.value)
    ]
    if times > 1:
        evidence.append(Evidence(OPENED, times, "times"))
    fields["evidence"] = tuple(evidence)
    for name in ("lost", "confidence"):
        fields[name] = fields[name] if isfinite(fields[name]) else 0.0
    return Finding(since_ns=since_ns, seen_ns=seen_ns, opened_as=opened_as, **fields)


def _recorded_worst(recorded: Mapping[str, Any], cause: str) -> Finding | None:
    """The worst moment of a recorded finding; None where it has none of this cause, or its texts
    were removed."""
    finding = from_stored(recorded)
    worst = None if finding is None else finding.worst or finding
    return worst if worst is not None and worst.cause == cause and worst.text else None
