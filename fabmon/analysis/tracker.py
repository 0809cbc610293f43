"""Gives conditions a life: a finding opens once, is told again when it moved, and closes once."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from fabmon.analysis.condition import SEVERITIES, Condition
from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.thresholds import Findings


class _Life:
    def __init__(self, finding: Finding, time_ns: int) -> None:
        self.finding = finding
        self.seen_ns = time_ns
        self.waited_ns = 0
        self.told_ns = time_ns
        self.told_text = finding.text


class Tracker:
    """Remembers what is open. Persistence before opening is the detectors' business."""

    def __init__(self, thresholds: Findings) -> None:
        self._close_after_ns = int(thresholds.close_after_s * 1e9)
        self._wait_at_most_ns = int(thresholds.wait_at_most_s * 1e9)
        self._now_ns = 0
        self._update_every_ns = int(thresholds.update_every_s * 1e9)
        self._open: dict[str, _Life] = {}

    def accept(
        self,
        conditions: Iterable[Condition],
        time_ns: int,
        explained: Collection[str] = (),
        idle: Collection[str] = (),
    ) -> list[tuple[Change, Finding]]:
        """What opened, moved or closed at this tick, given all that holds at it.

        Findings whose key is in `explained` close at once: their root has been found. Those in
        `idle` are given time: a job that computes shows nothing of what slows its traffic.
        """
        for key in idle:
            life = self._open.get(key)
            if life is not None and life.waited_ns < self._wait_at_most_ns:
                life.waited_ns += time_ns - self._now_ns
        self._now_ns = time_ns
        changes: list[tuple[Change, Finding]] = []
        for condition in conditions:
            life = self._open.get(condition.key)
            if life is None:
                finding = _finding(condition, time_ns)
                self._open[condition.key] = _Life(finding, time_ns)
                changes.append((Change.OPEN, finding))
                continue
            life.seen_ns, life.waited_ns = time_ns, 0
            life.finding = _finding(condition, life.finding.since_ns)
            if self._has_moved(life, time_ns):
                life.told_ns, life.told_text = time_ns, life.finding.text
                changes.append((Change.UPDATE, life.finding))
        changes += self._close(time_ns, explained)
        return changes

    def open(self) -> tuple[Finding, ...]:
        """What is open now, the costliest first; of equal ones the gravest, then the first."""
        findings = [life.finding for life in self._open.values()]
        return tuple(sorted(findings, key=_order))

    def _has_moved(self, life: _Life, time_ns: int) -> bool:
        due = time_ns - life.told_ns >= self._update_every_ns
        return due and life.finding.text != life.told_text

    @staticmethod
    def _missed_ns(life: _Life, time_ns: int) -> int:
        return time_ns - life.seen_ns - life.waited_ns

    def _close(self, time_ns: int, explained: Collection[str]) -> list[tuple[Change, Finding]]:
        gone = [
            key
            for key, life in self._open.items()
            if key in explained
            or (life.seen_ns != time_ns and self._missed_ns(life, time_ns) >= self._close_after_ns)
        ]
        closed = []
        for key in gone:
            life = self._open.pop(key)
            closed.append(
                (Change.CLOSE, msgspec.structs.replace(life.finding, until_ns=life.seen_ns))
            )
        return closed


def _finding(condition: Condition, since_ns: int) -> Finding:
    fields = {name: getattr(condition, name) for name in condition.__struct_fields__}
    return Finding(since_ns=since_ns, **fields)


def _order(finding: Finding) -> tuple[float, int, int, str]:
    return -finding.lost, SEVERITIES.index(finding.severity), finding.since_ns, finding.key
