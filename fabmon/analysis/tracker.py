"""Gives conditions a life: a finding opens once, is told again when it moved, and closes once."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from fabmon.analysis.finding import SEVERITIES, Change, Condition, Finding
from fabmon.analysis.thresholds import Findings

_LONGEST_TICK = 3
"""Intervals that a tick takes at most: a clock that was set, and a machine that slept, let no time
pass in which a condition could have been seen."""


class _Life:
    """`seen_ns` and `told_ns` are by the tracker's own clock, `last_ns` by the wall's."""

    def __init__(self, finding: Finding, now_ns: int, time_ns: int) -> None:
        self.finding = finding
        self.seen_ns = now_ns
        self.last_ns = time_ns
        self.waited_ns = 0
        self.told_ns = now_ns
        self.told_text = finding.text


class FindingTracker:
    """Remembers what is open. Persistence before opening is the detectors' business."""

    def __init__(self, thresholds: Findings) -> None:
        self._close_after_ns = int(thresholds.close_after_s * 1e9)
        self._wait_at_most_ns = int(thresholds.wait_at_most_s * 1e9)
        self._now_ns = 0
        self._time_ns: int | None = None
        self._update_every_ns = int(thresholds.update_every_s * 1e9)
        self._open: dict[str, _Life] = {}

    def accept(
        self,
        conditions: Iterable[Condition],
        time_ns: int,
        interval_s: float,
        explained: Collection[str] = (),
        idle: Collection[str] = (),
    ) -> list[tuple[Change, Finding]]:
        """What opened, moved or closed at this tick, given all that holds at it.

        `time_ns` is the wall clock; of what it moved since the last tick, three intervals count.
        Findings whose key is in `explained` close at once: their root has been found. Those in
        `idle` are given time: a job that computes shows nothing of what slows its traffic.
        """
        passed_ns = self._passed_ns(time_ns, interval_s)
        self._now_ns += passed_ns
        for key in idle:
            life = self._open.get(key)
            if life is not None and life.waited_ns < self._wait_at_most_ns:
                life.waited_ns += passed_ns
        changes: list[tuple[Change, Finding]] = []
        for condition in conditions:
            life = self._open.get(condition.key)
            if life is None:
                finding = _finding(condition, time_ns, time_ns)
                self._open[condition.key] = _Life(finding, self._now_ns, time_ns)
                changes.append((Change.OPEN, finding))
                continue
            life.seen_ns, life.last_ns, life.waited_ns = self._now_ns, time_ns, 0
            life.finding = _finding(condition, life.finding.since_ns, time_ns)
            if self._has_moved(life):
                life.told_ns, life.told_text = self._now_ns, life.finding.text
                changes.append((Change.UPDATE, life.finding))
        changes += self._close(explained)
        return changes

    def open(self) -> tuple[Finding, ...]:
        """What is open now, the costliest first; of equal ones the gravest, then the first."""
        findings = [life.finding for life in self._open.values()]
        return tuple(sorted(findings, key=_order))

    def _passed_ns(self, time_ns: int, interval_s: float) -> int:
        before_ns, self._time_ns = self._time_ns, time_ns
        if before_ns is None:
            return 0
        return min(max(time_ns - before_ns, 0), int(_LONGEST_TICK * interval_s * 1e9))

    def _has_moved(self, life: _Life) -> bool:
        due = self._now_ns - life.told_ns >= self._update_every_ns
        return due and life.finding.text != life.told_text

    def _missed_ns(self, life: _Life) -> int:
        return self._now_ns - life.seen_ns - life.waited_ns

    def _close(self, explained: Collection[str]) -> list[tuple[Change, Finding]]:
        gone = [
            key
            for key, life in self._open.items()
            if key in explained
            or (life.seen_ns != self._now_ns and self._missed_ns(life) >= self._close_after_ns)
        ]
        closed = []
        for key in gone:
            life = self._open.pop(key)
            closed.append(
                (Change.CLOSE, msgspec.structs.replace(life.finding, until_ns=life.last_ns))
            )
        return closed


def _finding(condition: Condition, since_ns: int, seen_ns: int) -> Finding:
    fields = {name: getattr(condition, name) for name in condition.__struct_fields__}
    return Finding(since_ns=since_ns, seen_ns=seen_ns, **fields)


def _order(finding: Finding) -> tuple[float, int, int, str]:
    return -finding.lost, SEVERITIES.index(finding.severity), finding.since_ns, finding.key
