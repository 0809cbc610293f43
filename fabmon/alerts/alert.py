"""Which findings are alerts: by severity, cause and age, with a bound per kind of finding."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from fabmon.alerts.settings import AlertsConfig, BaseReceiver, QuietHours, parse_quiet_hours
from fabmon.analysis.causes import CAUSES, finding_title, sentence
from fabmon.analysis.earlier_findings import Awaited, EarlierFinding
from fabmon.analysis.finding import (
    SEVERITIES,
    Change,
    Finding,
    Trait,
    shown_moment,
    times_opened,
)
from fabmon.analysis.scene import Scene
from fabmon.fabric.jobs.job_table import JobTable
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.wording import name_list, plural

_MOST_NAMED = 10
"""Subjects that the text of a group names."""
_MOST_JOBS = 3


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, or a group of findings of one kind, as receivers see it.

    `kind` is the family of the cause, or the cause where it has none; with the subject it makes
    `id`, which stays the same while the cause changes within the family, and after a restart.
    `severity` only rises while an alert is open. `node` and `port` are empty where the subject is
    neither. `ports` are ids. `others` are further findings that the alert stands for. `users` are
    those of the finding's jobs. `until_ns` is None while it is open.
    """

    id: str
    kind: str
    severity: str
    finding: Finding
    node: str = ""
    port: str = ""
    ports: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    until_ns: int | None = None

    @property
    def summary(self) -> str:
        """Cause and subject, or the number of findings of a group."""
        if self.others:
            return f"{finding_title(self.finding)}: {plural(len(self.others), 'more finding')}"
        return f"{finding_title(self.finding)}: {self.finding.subject}"

    @property
    def known(self) -> Finding:
        """The finding, with the end of the alert where it has one."""
        if self.until_ns is None or self.finding.until_ns is not None:
            return self.finding
        return msgspec.structs.replace(self.finding, until_ns=self.until_ns)

    @property
    def shown(self) -> Finding:
        """The finding at the moment that every output shows."""
        return shown_moment(self.known)

    @property
    def text(self) -> str:
        """The finding in a sentence with its jobs, or the subjects of a group."""
        if not self.others:
            text, jobs = sentence(self.known), name_list(self.shown.jobs, _MOST_JOBS)
            affects, times = f" (affects {jobs})" if jobs else "", times_opened(self.finding)
            return f"{text}{affects}{f'; opened {times} times' if times > 1 else ''}"
        named = ", ".join(self.others[:_MOST_NAMED])
        rest = len(self.others) - _MOST_NAMED
        return f"{named} and {rest} more" if rest > 0 else named


class AlertRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which findings become alerts. No `causes`, `jobs` or `users`: all. In quiet hours (None:
    there are none) only those of `quiet_min_severity`; others do when they end, if they are still
    open. `jobs` are numbers or names; one job of a finding has to match what is given."""

    min_severity: str
    causes: frozenset[str]
    open_for_s: float
    group_above: int
    keep_open_s: float = 0.0
    quiet_hours: QuietHours | None = None
    quiet_min_severity: str = "critical"
    jobs: tuple[str, ...] = ()
    users: frozenset[str] = frozenset()

    @classmethod
    def of(cls, config: AlertsConfig, receiver: BaseReceiver) -> AlertRules:
        """The rules of a receiver: its own, else those of the table."""
        causes = config.causes if receiver.causes is None else receiver.causes
        return cls(
            min_severity=receiver.min_severity or config.min_severity,
            causes=frozenset(causes),
            open_for_s=config.open_for_s,
            group_above=config.group_above,
            keep_open_s=config.keep_open_s,
            quiet_hours=parse_quiet_hours(
                config.quiet_hours if receiver.quiet_hours is None else receiver.quiet_hours
            ),
            quiet_min_severity=receiver.quiet_min_severity or config.quiet_min_severity,
            jobs=config.jobs if receiver.jobs is None else receiver.jobs,
            users=frozenset(config.users if receiver.users is None else receiver.users),
        )

    def labels(self, jobs: JobTable) -> frozenset[str] | None:
        """The labels of the jobs whose findings are wanted; None for all findings."""
        if not self.jobs and not self.users:
            return None
        return frozenset(
            job.label
            for job in jobs.jobs
            if (not self.jobs or any(job.is_called(each) or job.name == each for each in self.jobs))
            and (not self.users or job.user in self.users)
        )

    def admit(self, finding: Finding, time_ns: int, labels: frozenset[str] | None = None) -> bool:
        """Whether a finding becomes an alert at a time; `labels` as from labels()."""
        shown = shown_moment(finding)
        severity = shown.severity
        return (
            _rank(severity) >= _rank(self.min_severity)
            and (not self.causes or finding.cause in self.causes)
            and (labels is None or not labels.isdisjoint(shown.jobs))
            and time_ns - finding.since_ns >= self.open_for_s * 1e9
            and (
                self.quiet_hours is None
                or _rank(severity) >= _rank(self.quiet_min_severity)
                or not self.quiet_hours.has(time_ns)
            )
        )


class AlertBook:
    """The open alerts of one receiver.

    A finding that has become an alert stays one until it has been closed for `keep_open_s`,
    whatever its severity becomes: one that opens again meanwhile is the same alert. Of
    one kind, `group_above` findings have an alert of their own; what opens beyond them shares one,
    and stays in it: alerts do not close and open because others do.
    """

    def __init__(self, rules: AlertRules) -> None:
        self._rules = rules
        self._single: dict[str, Alert] = {}
        self._grouped: dict[str, dict[str, Finding]] = {}
        self._severity: dict[str, str] = {}
        self._keep_open_s = rules.keep_open_s
        self._now_s = 0.0
        self._closed_s: dict[str, float] = {}
        self._inherited: dict[str, tuple[Alert, Awaited]] = {}
        """What the receiver has from an earlier run, and of which it is not known yet whether it is
        still so, by id; of a group, by the id of each member."""

    def inherit(self, alerts: Sequence[Alert]) -> None:
        """The receiver has these from an earlier run: their findings become alerts whatever the
        rules say now, and stay in their group. Those that are not found are open until the nodes
        that report them have answered, and could have been found again. Those that are open
        already are not waited for."""
        for alert in alerts:
            if not alert.others:
                earlier = EarlierFinding(alert.finding, alert.ports)
                self._inherited[alert.id] = alert, Awaited(earlier)
                continue
            self._severity[alert.id] = alert.severity
            for subject in alert.others:
                of = msgspec.structs.replace(alert.finding, subject=subject)
                self._inherited[f"{alert.kind}:{subject}"] = alert, Awaited(EarlierFinding(of))
        for id_ in self._inherited.keys() & set(self._single).union(*self._grouped.values()):
            del self._inherited[id_]

    def accept(self, scene: Scene) -> Mapping[str, Alert]:
        """The open alerts by id, at a scene."""
        time_ns = scene.snapshot.time_ns
        found = {f"{kind_of(each)}:{each.subject}": each for each in scene.findings}
        labels = self._rules.labels(scene.snapshot.jobs)
        self._drop_closed(scene, found.keys())
        counts: dict[str, int] = {}
        alone = (each for each, _ in self._inherited.values() if not each.others)
        for alert in (*self._single.values(), *alone):
            counts[alert.kind] = counts.get(alert.kind, 0) + 1
        for id_, finding in found.items():
            kind = kind_of(finding)
            known = self._single.get(id_)
            members = self._grouped.setdefault(kind, {})
            sent, _ = self._inherited.pop(id_, (None, None))
            if sent is not None and sent.others:
                members[id_] = finding
            elif sent is not None:
                self._single[id_] = _updated(sent, finding, scene.snapshot)
            elif known is not None:
                if known.finding is not finding:
                    self._single[id_] = _updated(known, finding, scene.snapshot)
            elif id_ in members:
                members[id_] = finding
            elif self._rules.admit(finding, time_ns, labels):
                if counts.get(kind, 0) < self._rules.group_above:
                    counts[kind] = counts.get(kind, 0) + 1
                    self._single[id_] = _alert(id_, kind, finding, scene.snapshot)
                else:
                    members[id_] = finding
        self._forget_over(scene.snapshot)
        unknown = {alert.id: alert for alert, _ in self._inherited.values()}
        return {**unknown, **self._single, **self._groups()}

    def _forget_over(self, snapshot: Snapshot) -> None:
        """Forget what was inherited and would have been found again by now."""
        if not self._inherited:
            return
        ids = {port for alert, _ in self._inherited.values() for port in alert.ports}
        rows = snapshot.fabric.rows_of(ids)
        for id_, (alert, awaited) in list(self._inherited.items()):
            awaited.rows = tuple(rows[port] for port in alert.ports if port in rows)
            awaited.wait(snapshot)
            if awaited.left_s == 0.0:
                del self._inherited[id_]

    def _drop_closed(self, scene: Scene, found: Collection[str]) -> None:
        """Drop the alerts whose findings closed `keep_open_s` ago, by the time that passed in
        ticks: a clock may be set. Those of a port that has another finding now are dropped at once:
        the fault goes by that name."""
        self._now_s += scene.snapshot.interval_s
        ended = {
            f"{kind_of(finding)}:{finding.subject}": finding
            for change, finding in scene.changes
            if change is Change.CLOSE
        }
        known: list[dict[str, Any]] = [self._single, *self._grouped.values()]
        for members in known:
            for id_ in [id_ for id_ in members if id_ not in found]:
                if self._now_s - self._closed_s.setdefault(id_, self._now_s) >= self._keep_open_s:
                    del members[id_], self._closed_s[id_]
        for id_ in self._closed_s.keys() & found:
            del self._closed_s[id_]
        rows = {row for each in scene.findings for row in each.rows[:2]}
        for id_ in ended.keys() & self._single.keys() - found:
            alert = msgspec.structs.replace(self._single[id_], finding=ended[id_])
            self._single[id_] = alert
            if not rows.isdisjoint(ended[id_].rows[:1]):
                del self._single[id_], self._closed_s[id_]

    def _groups(self) -> dict[str, Alert]:
        groups: dict[str, Alert] = {}
        for kind, members in self._grouped.items():
            id_ = f"{kind}:more"
            if not members:
                self._severity.pop(id_, None)
                continue
            findings = list(members.values())
            severities = [shown_moment(each).severity for each in findings]
            severities.append(self._severity.get(id_, ""))
            self._severity[id_] = max(severities, key=_rank)
            groups[id_] = Alert(
                id=id_,
                kind=kind,
                severity=self._severity[id_],
                finding=min(findings, key=lambda each: each.since_ns),
                others=tuple(each.subject for each in findings),
            )
        return groups


def kind_of(finding: Finding) -> str:
    """The family of a finding's cause as one word, else the cause that it was opened with."""
    cause = CAUSES.get(finding.cause)
    family = cause.family if cause is not None else ""
    return family.replace(" ", "_") or finding.opened_as or finding.cause


def place_of(finding: Finding) -> tuple[str, str]:
    """The node and the port that a finding is about, empty where it is about none.

    By its words alone: they are part of what Alertmanager recognises an alert by, and after a
    restart the finding is open before its node has said which ports it has.
    """
    traits = CAUSES[finding.cause].traits if finding.cause in CAUSES else ()
    node, slash, port = finding.subject.partition("/")
    if Trait.OF_NO_PLACE in traits or (not slash and " " in node):
        return "", ""
    return node, "" if Trait.FULL_GROUP in traits else port


def _alert(id_: str, kind: str, finding: Finding, snapshot: Snapshot) -> Alert:
    node, port = place_of(finding)
    return Alert(
        id=id_,
        kind=kind,
        severity=shown_moment(finding).severity,
        finding=finding,
        node=node,
        port=port,
        ports=_ids(finding.rows, snapshot),
        users=_users(finding, snapshot),
    )


def _updated(alert: Alert, finding: Finding, snapshot: Snapshot) -> Alert:
    severity = max(alert.severity, shown_moment(finding).severity, key=_rank)
    ports = _ids(finding.rows, snapshot)
    users = _users(finding, snapshot)
    return msgspec.structs.replace(
        alert, severity=severity, finding=finding, ports=ports, users=users
    )


def _users(finding: Finding, snapshot: Snapshot) -> tuple[str, ...]:
    """The users of the jobs that a finding names, each once."""
    named = shown_moment(finding).jobs
    found = [job.user for job in snapshot.jobs.jobs if job.label in named and job.user]
    return tuple(dict.fromkeys(found))


def _ids(rows: Sequence[int], snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(snapshot.fabric.ports[row].id for row in rows)


def _rank(severity: str) -> int:
    """Higher is more severe; what is not known is below all."""
    return -SEVERITIES.index(severity) if severity in SEVERITIES else -len(SEVERITIES)
