"""Which findings become alerts, and what a receiver is still to be sent."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import msgspec
import pytest

from fabmon.alerts.alert import Alert, AlertBook, AlertRules
from fabmon.alerts.alertmanager import posted_alert
from fabmon.alerts.notifier import values
from fabmon.alerts.outbox import Outbox
from fabmon.alerts.settings import (
    AlertsConfig,
    JournaldReceiver,
    SettingError,
    check,
    parse_quiet_hours,
)
from fabmon.analysis.finding import Change, Evidence, Finding
from fabmon.analysis.scene import Scene
from fabmon.fabric.jobs.job import Job, JobReport
from fabmon.fabric.jobs.job_table import JobTable
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.history.history import History

RULES = AlertRules(min_severity="warning", causes=frozenset(), open_for_s=0.0, group_above=2)


def finding(subject: str, cause: str = "incast", severity: str = "warning") -> Finding:
    return Finding(
        cause=cause,
        severity=severity,
        subject=subject,
        rows=(),
        text=f"{subject} has a problem",
        evidence=(),
        advice="",
        confidence=0.9,
        since_ns=10,
    )


def scene(*findings: Finding, time_s: float = 1) -> Scene:
    snapshot = History([]).accept(Tick(0, int(time_s * 1e9)))
    return Scene(snapshot, findings, (), ())


def open_ids(book: AlertBook, *findings: Finding) -> set[str]:
    return set(book.accept(scene(*findings)))


def test_severity_cause_and_age_decide() -> None:
    assert not open_ids(AlertBook(RULES), finding("a", severity="note"))
    assert open_ids(AlertBook(RULES), finding("a", severity="critical")) == {"incast:a"}
    only = msgspec.structs.replace(RULES, causes=frozenset({"straggler"}))
    assert open_ids(AlertBook(only), finding("a"), finding("b", "straggler")) == {"straggler:b"}
    later = AlertBook(msgspec.structs.replace(RULES, open_for_s=30))
    assert not later.accept(scene(finding("a"), time_s=29))
    assert later.accept(scene(finding("a"), time_s=31))


@pytest.mark.parametrize(
    ("cause", "subject", "place"),
    [
        ("ecmp_collision", "leaf1/up3", ("leaf1", "up3")),
        ("incast", "leaf1/Ethernet 1/1", ("leaf1", "Ethernet 1/1")),
        ("polarization", "leaf1/uplinks", ("leaf1", "")),
        ("node_lost", "gpu001", ("gpu001", "")),
        ("congested_path", "paths out of leaf1", ("", "")),
        ("uneven_rails", "rails r1", ("", "")),
        ("job_stalled", "sweep/7", ("", "")),
        ("saturated_counter", "ib_tx_wait", ("", "")),
    ],
)
def test_an_alert_has_the_same_labels_before_and_after_its_ports_are_read(
    cause: str, subject: str, place: tuple[str, str]
) -> None:
    """A watch that was killed, and has read no node yet, opens it with no rows: with other labels
    Alertmanager took it for a second alert."""
    (alert,) = AlertBook(RULES).accept(scene(finding(subject, cause, "critical"))).values()
    assert (alert.node, alert.port) == place
    labels = posted_alert(alert, "lab", "", 10**18)["labels"]
    assert (labels.get("node", ""), labels.get("port", "")) == place


def at(text: str) -> float:
    """Seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def test_in_quiet_hours_only_severe_findings_are_new_alerts() -> None:
    quiet = parse_quiet_hours("22:00-07:00 Europe/Berlin")
    book = AlertBook(msgspec.structs.replace(RULES, quiet_hours=quiet))
    evening, night, morning = (
        at(f"2026-11-{time}+01:00") for time in ("23T21:59", "24T06:59", "24T07:00")
    )
    before, warning = finding("before"), finding("a")
    assert set(book.accept(scene(before, time_s=evening))) == {"incast:before"}
    found = book.accept(scene(before, warning, finding("b", severity="critical"), time_s=night))
    assert set(found) == {"incast:before", "incast:b"}
    worse = finding("a", severity="critical")
    assert set(book.accept(scene(worse, time_s=night))) == {"incast:a"}
    book = AlertBook(msgspec.structs.replace(RULES, quiet_hours=quiet))
    assert not book.accept(scene(warning, time_s=night))
    assert set(book.accept(scene(warning, time_s=morning))) == {"incast:a"}


@pytest.mark.parametrize(
    ("hours", "time", "is_quiet"),
    [
        ("22:00-07:00 UTC", "2026-11-23T23:30+00:00", True),
        ("22:00-07:00 UTC", "2026-11-23T12:00+00:00", False),
        ("12:00 - 13:30 UTC", "2026-11-23T13:29+00:00", True),
        ("12:00-13:30 UTC", "2026-11-23T13:30+00:00", False),
        ("0:00-00:00 UTC", "2026-11-23T13:30+00:00", True),
        # 02:30 of Berlin's summer time.
        ("02:00-03:00 Europe/Berlin", "2026-07-23T00:30+00:00", True),
        ("02:00-03:00 Europe/Berlin", "2026-11-23T00:30+00:00", False),
    ],
)
def test_quiet_hours_over_midnight_and_in_zones(hours: str, time: str, is_quiet: bool) -> None:
    quiet = parse_quiet_hours(hours)
    assert quiet is not None
    assert quiet.has(int(at(time) * 1e9)) is is_quiet


@pytest.mark.parametrize("hours", ["22-7", "25:00-07:00", "22:00", "22:00-07:00 Mars/Base"])
def test_quiet_hours_that_are_none_are_refused(hours: str) -> None:
    with pytest.raises(SettingError, match=r"22:00-07:00|Europe/Berlin"):
        check(AlertsConfig(quiet_hours=hours), ())
    config = AlertsConfig(receivers={"log": JournaldReceiver(quiet_hours=hours)})
    with pytest.raises(SettingError):
        check(config, ())


def test_only_findings_of_some_jobs_or_users() -> None:
    jobs = (
        Job(id="8801", name="llama", user="anna", nodes=("gpu1",)),
        Job(id="8802", shown_id="8802_3", name="sweep", user="ben", nodes=("gpu2",)),
    )
    table = JobTable(JobReport(source="squeue", jobs=jobs), hosts=["gpu1", "gpu2"])
    plain = scene(
        *(
            msgspec.structs.replace(finding(name), jobs=tuple(job.label for job in of))
            for name, of in (("a", jobs[:1]), ("b", jobs[1:]), ("both", jobs), ("none", ()))
        )
    )
    seen = replace(plain, snapshot=replace(plain.snapshot, jobs=table))

    def sent(jobs: tuple[str, ...] = (), users: tuple[str, ...] = ()) -> set[str]:
        rules = AlertRules.of(AlertsConfig(), JournaldReceiver(jobs=jobs, users=users))
        return {alert.finding.subject for alert in AlertBook(rules).accept(seen).values()}

    assert sent() == {"a", "b", "both", "none"}
    assert sent(jobs=("8801",)) == sent(jobs=("llama",)) == sent(users=("anna",)) == {"a", "both"}
    assert sent(jobs=("8802",)) == sent(jobs=("8802_3",)) == {"b", "both"}
    assert sent(users=("anna", "ben")) == {"a", "b", "both"}
    assert not sent(jobs=("8801",), users=("ben",))
    assert not sent(jobs=("9999",))


def test_receivers_are_told_the_jobs_that_are_affected_and_their_users() -> None:
    jobs = tuple(
        Job(id=str(8800 + number), name="llama", user=user, nodes=("gpu1",))
        for number, user in enumerate(("anna", "ben", "anna", ""))
    )
    labels = tuple(job.label for job in jobs)
    plain = scene(msgspec.structs.replace(finding("gpu1"), jobs=labels))
    table = JobTable(JobReport(source="squeue", jobs=jobs), hosts=["gpu1"])
    seen = replace(plain, snapshot=replace(plain.snapshot, jobs=table))

    (alert,) = AlertBook(RULES).accept(seen).values()

    assert alert.text == (
        "gpu1 has a problem (affects job 8800 llama (anna), job 8801 llama (ben), "
        "job 8802 llama (anna) and 1 more)"
    )
    assert alert.users == ("anna", "ben")
    posted = posted_alert(alert, "lab", "", 10**18)["annotations"]
    assert posted["jobs"] == ", ".join(labels)
    assert posted["users"] == "anna, ben"
    assert values(Change.OPEN, alert, "lab", "")["users"] == "anna, ben"


def test_a_receiver_has_quiet_hours_of_its_own() -> None:
    config = AlertsConfig(quiet_hours="22:00-07:00", quiet_min_severity="warning")
    assert AlertRules.of(config, JournaldReceiver()).quiet_hours is not None
    own = AlertRules.of(config, JournaldReceiver(quiet_hours="", quiet_min_severity="note"))
    assert (own.quiet_hours, own.quiet_min_severity) == (None, "note")


def test_an_alert_keeps_its_name_while_its_cause_changes_and_its_severity_only_rises() -> None:
    book = AlertBook(RULES)
    book.accept(scene(finding("leaf1/up1", "flapping_link")))
    (alert,) = book.accept(scene(finding("leaf1/up1", "degraded_link", "critical"))).values()
    assert (alert.id, alert.severity) == ("link:leaf1/up1", "critical")
    (alert,) = book.accept(scene(finding("leaf1/up1", "degraded_link", "note"))).values()
    assert (alert.finding.severity, alert.severity) == ("note", "critical")
    assert not book.accept(scene())


def test_ten_thousand_findings_are_few_alerts_that_do_not_move() -> None:
    book = AlertBook(RULES)
    many = [finding(f"gpu{number:05}") for number in range(10_000)]
    alerts = book.accept(scene(*many))
    assert set(alerts) == {"incast:gpu00000", "incast:gpu00001", "incast:more"}
    assert alerts["incast:more"].summary == "Incast: 9998 more findings"
    assert alerts["incast:more"].text.endswith(" and 9988 more")
    # The first two close: nobody moves up, which would notify of old findings as new ones.
    assert open_ids(book, *many[2:]) == {"incast:more"}
    assert open_ids(book, *many[2:], finding("new")) == {"incast:more", "incast:new"}
    assert not open_ids(book)


def test_what_opens_again_within_minutes_is_the_same_alert_and_counted() -> None:
    book = AlertBook(msgspec.structs.replace(RULES, keep_open_s=60))
    again = (Evidence("opened", 2, "times"),)
    second = msgspec.structs.replace(finding("a"), evidence=again)
    assert open_ids(book, finding("a")) == {"incast:a"}
    for _ in range(60):
        assert open_ids(book) == {"incast:a"}, "it may open again"
    (alert,) = book.accept(scene(second)).values()
    assert alert.text == "a has a problem; opened 2 times"
    for _ in range(60):
        assert open_ids(book) == {"incast:a"}
    assert not open_ids(book)


def test_after_a_restart_what_a_receiver_has_keeps_its_severity_and_its_group() -> None:
    """Also in quiet hours, which began meanwhile."""
    first = AlertBook(RULES)
    worse = finding("a", severity="critical")
    first.accept(scene(worse, *(finding(name) for name in "bcd")))
    before = first.accept(scene(*(finding(name) for name in "abcd")))
    quiet = AlertRules.of(
        AlertsConfig(quiet_hours="00:00-00:00", group_above=2), JournaldReceiver()
    )
    for rules in (RULES, quiet):
        book = AlertBook(rules)
        book.inherit(list(before.values()))
        after = book.accept(scene(*(finding(name) for name in "dcba")))
        assert after.keys() == before.keys()
        assert after["incast:a"].severity == "critical"
        assert set(after["incast:more"].others) == {"c", "d"}


@pytest.mark.parametrize(("interval_s", "ticks"), [(1.0, 120), (30.0, 60)])
def test_what_is_not_found_after_a_restart_is_over_once_its_node_could_have_shown_it(
    interval_s: float, ticks: int
) -> None:
    first = AlertBook(RULES)
    sent = first.accept(scene(*(finding(f"gpu1/eth{number}") for number in range(4))))
    book = AlertBook(RULES)
    book.inherit(list(sent.values()))
    empty = scene().snapshot

    def still_open(state: NodeState) -> bool:
        statuses = {"gpu1": NodeStatus("gpu1", state, 0)}
        now = replace(empty, interval_s=interval_s, statuses=statuses)
        return book.accept(Scene(now, (), (), ())) == sent

    assert all(still_open(NodeState.FAILED) for _ in range(500)), "it is not known"
    assert all(still_open(NodeState.UP) for _ in range(ticks))
    assert not book.accept(replace(scene(), snapshot=replace(empty, interval_s=interval_s)))


def alert(id_: str, text: str = "", severity: str = "warning") -> Alert:
    found = finding(id_, severity=severity)
    return Alert(id=id_, kind="incast", severity=severity, finding=found, ports=(text,))


def outbox(resend_s: float | None = None) -> Outbox:
    return Outbox(lambda each: each.id, lambda sent, new: sent.ports != new.ports, resend_s)


def test_only_the_newest_version_is_sent_and_what_is_open_again_later() -> None:
    box = outbox(resend_s=60)
    for text in ("one", "two", "three"):
        box.accept({"a": alert("a", text)}, now_ns=1)
    (due,) = box.due(0, 10)
    assert due.ports == ("three",)
    box.delivered([due], 0)
    assert box.due(59, 10) == []
    assert box.due(60, 10) == [due]
    assert box.next_due_s() == 60


def test_what_closed_is_sent_until_it_is_delivered_also_if_it_never_was() -> None:
    box = outbox()
    box.accept({"a": alert("a")}, now_ns=1)
    box.accept({}, now_ns=7)
    box.accept({}, now_ns=8)
    (closed,) = box.due(0, 10)
    assert closed.until_ns == 7
    box.delivered([closed], 0)
    assert box.due(1e9, 10) == []
    assert box.next_due_s() == float("inf")


def test_what_was_never_sent_waits_for_what_is_open() -> None:
    box = outbox()
    box.accept({"sent": alert("sent"), "unsent": alert("unsent")}, now_ns=1)
    box.delivered([each for each in box.due(0, 10) if each.id == "sent"], 0)
    group = msgspec.structs.replace(alert("more"), others=("a", "b"))
    box.accept({"new": alert("new"), "more": group}, now_ns=2)
    assert [each.id for each in box.due(1, 10)] == ["sent", "more", "new", "unsent"]


def test_what_opens_again_while_its_end_is_on_its_way_is_sent_again() -> None:
    box = outbox()
    box.accept({"a": alert("a")}, now_ns=1)
    box.delivered(box.due(0, 10), 0)
    box.accept({}, now_ns=2)
    closing = box.due(1, 10)
    box.accept({"a": alert("a")}, now_ns=3)
    box.delivered(closing, 1)
    (due,) = box.due(1, 10)
    assert due.until_ns is None


def test_what_closed_while_a_receiver_is_lost_is_bounded() -> None:
    box = outbox()
    for number in range(1500):
        box.accept({"x": alert(f"a{number}")}, now_ns=number)
    box.accept({}, now_ns=1500)
    assert len(box.due(0, 10_000)) == 1000
    assert box.given_up == 500


def test_an_alert_that_ended_says_what_its_finding_was_at_its_worst() -> None:
    worst = msgspec.structs.replace(finding("a"), text="a loses 65 %", lost=0.65, seen_ns=20)
    faded = msgspec.structs.replace(finding("a"), lost=0.15, worst=worst)
    alert = Alert(id="incast:a", kind="incast", severity="warning", finding=faded)
    assert alert.text == "at 00:00:00Z: a loses 65 %; now 15 % lost"
    ended = msgspec.structs.replace(alert, until_ns=int(90e9))
    text = "01-01 00:00:00Z to 00:01:30Z, at 00:00:00Z: a loses 65 %; 15 % lost at its end"
    assert ended.text == values(Change.CLOSE, ended, "", "")["text"] == text
