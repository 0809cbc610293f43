"""Questions to a recording: the answers of the program, their schema, their bounds, refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from fabmon.analysis import analyst
from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import Condition
from fabmon.query.answers import Answer, schema
from fabmon.query.items import cut_lists, known_finding_record
from fabmon.query.questions import question_of
from fabmon.query.sources import KnownFinding
from fabmon.session.config import load
from fabmon.session.errors import UsageError
from fabmon.session.query_run import query
from fabmon.session.session import Session
from tests.goldens import check_golden
from tests.tui.recordings import FAST, Watching, at, past_of
from tests.unit.alerts.test_alert_book import finding
from tests.unit.test_cli import fabmon_here

DOCS = Path(__file__).parents[3] / "docs"


def asked(recording: Path, name: str, redact: bool = False, **fields: Any) -> dict[str, Any]:
    """The answer to one question, checked against the schema."""
    given = {key.rstrip("_"): value for key, value in fields.items()}
    question = question_of(name, given)
    found: Answer = asyncio.run(query(Session(load(None)), (recording,), None, redact, question))
    record: dict[str, Any] = json.loads(msgspec.json.encode(found))
    jsonschema.validate(record, json.loads(schema()))
    assert record["answer"] == name
    return record


def test_the_schema_that_is_committed_is_that_of_the_code() -> None:
    check_golden(DOCS / "query.schema.json", schema().decode())
    assert json.loads(fabmon_here("query", "--schema").stdout) == json.loads(schema())


def test_status_says_what_there_is_to_ask_about(recorded: Path) -> None:
    found = asked(recorded, "status")
    assert (found["from"], found["to"]) == ("2026-11-21T14:06:40Z", "2026-11-21T14:08:19Z")
    assert (found["nodes_up"], found["nodes_total"], found["jobs"]) == (10, 10, 1)
    assert found["source"] == "incident.fabrec"
    assert found["findings"] == 1


def test_a_finding_has_its_evidence_its_jobs_and_its_end(recorded: Path) -> None:
    (found,) = asked(recorded, "findings")["findings"]
    assert (found["cause"], found["change"]) == ("ecmp_collision", "close")
    assert found["ports"][0] == "leaf1/swp35" or found["subject"] in found["ports"]
    assert found["jobs"] == ["job 8801 train (anna)"]
    assert found["evidence"]
    assert found["advice"]
    assert found["since"] < found["until"] <= "2026-11-21T14:08:20Z"
    during = asked(recorded, "findings", to="+40s")
    assert during["findings"][0]["until"] is None, "it was open then"
    assert during["findings"][0]["change"] == "open"
    assert during["findings"][0]["time"] == during["to"]


@pytest.mark.parametrize(
    ("to", "is_over"), [("+46s", False), ("+47s", False), ("+55s", False), ("+63s", True)]
)
def test_a_finding_has_an_end_in_every_output_from_when_it_is_known(
    recorded: Path, tmp_path: Path, to: str, is_over: bool
) -> None:
    """It ended at 47 s; that it had, the recorder knew at 62 s."""
    (whole,) = asked(recorded, "findings")["findings"]
    (found,) = asked(recorded, "findings", to=to)["findings"]
    assert (found["change"], found["until"]) == (
        ("close", whole["until"]) if is_over else ("open", None)
    )
    links = asked(recorded, "links", at=to, ports=["leaf1/*"])["links"]
    assert any(each["findings"] for each in links) is not is_over
    assert asked(recorded, "status")["open_findings"] == 0
    at_once = fabmon_here("replay", str(recorded), "--at", to, "--once", "--format", "json")
    shown = json.loads(at_once.stdout)["findings"]
    names = ("key", "since", "seen", "until", "text", "lost", "worst")
    assert [[each[name] for name in names] for each in shown] == (
        [] if is_over else [[found[name] for name in names]]
    )
    page = tmp_path / "page.html"
    assert not fabmon_here("report", str(recorded), "--to", to, "-o", str(page)).returncode
    assert (", closed" in page.read_text()) is is_over


def test_a_range_that_begins_within_a_finding_has_it_in_every_output(
    recorded: Path, tmp_path: Path
) -> None:
    """Export, report and query analyse the same minutes before it."""
    part = (str(recorded), "--from", "14:07:15", "--to", "14:07:17")
    lines = fabmon_here("export", *part, "--format", "jsonl").stdout.splitlines()
    first = next(each for each in map(json.loads, lines) if each["type"] == "finding")
    (asked_for,) = asked(recorded, "findings", to="14:07:15")["findings"]
    for name in ("change", "key", "since", "time", "text", "lost", "evidence"):
        assert first[name] == asked_for[name], name
    page = tmp_path / "page.html"
    assert not fabmon_here("report", *part, "-o", str(page)).returncode
    last = asked(recorded, "findings", to="14:07:17")["findings"][0]["text"]
    assert last.replace("\N{NO-BREAK SPACE}", " ") in page.read_text().replace(
        "\N{NO-BREAK SPACE}", " "
    )
    at_once = fabmon_here("replay", str(recorded), "--at", "14:07:15", "--once", "--format", "json")
    (shown,) = json.loads(at_once.stdout)["findings"]
    assert (shown["text"], shown["since"]) == (first["text"], first["since"])


def test_what_was_not_checked_for_damage_is_said_by_info_and_every_answer(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "not checked for damage"
    assert said not in fabmon_here("info", str(recorded)).stdout
    assert asked(recorded, "status")["notes"] == []
    monkeypatch.setattr("fabmon.session.replay_run._MOST_COMPARED_BYTES", 1000)
    assert said in fabmon_here("info", str(recorded)).stdout
    for name in ("status", "findings", "links", "jobs"):
        assert any(said in each for each in asked(recorded, name)["notes"]), name


def test_a_detector_that_failed_is_said_in_the_answers_that_are_analysed(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(inputs: DetectorInput) -> Iterable[Condition]:
        raise ArithmeticError

    monkeypatch.setattr(analyst, "detectors", lambda *_: (fail,))
    found = asked(recorded, "jobs", analyse=True)
    assert "A detector failed: findings may be missing (fail)." in found["notes"]


async def test_an_open_finding_has_the_numbers_of_the_time_as_a_replay_shows_it(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are recorded every few seconds only."""
    past, differ = past_of(recorded), 0
    for second in range(26, 40, 2):
        (noted, *_) = [
            each.finding["text"]
            for each in reversed((await past.look()).notes)
            if each.kind == "finding" and each.time_ns <= at(second)
        ]
        scene = await past.settle(at(second))
        assert scene is not None
        (shown,) = scene.findings
        question = question_of("findings", {"to": f"+{second}s"})
        found: Any = await query(Session(load(None)), (recorded,), None, False, question)
        assert [each.text for each in found.findings] == [shown.text]
        differ += shown.text != noted
    assert differ
    monkeypatch.setattr("fabmon.query.answering._MOST_ANALYSED", 1)
    found = await query(Session(load(None)), (recorded,), None, False, question)
    assert "the numbers of open findings are those that were recorded last" in found.notes[0]
    await past.close()


def test_a_range_ends_with_a_tick_of_the_recording(recorded: Path) -> None:
    """14:07:20 means the tick that ends in that second, not the last nanosecond of it."""
    for found in (
        asked(recorded, "findings", to="14:07:20"),
        asked(recorded, "job", job="8801", to="14:07:20"),
    ):
        assert found["to"] == "2026-11-21T14:07:20Z"
        assert {each["time"] for each in found["findings"]} == {found["to"]}
    found = asked(recorded, "history", port="leaf1/swp5", from_="+30s", to="14:07:20.5")
    assert found["to"] == "2026-11-21T14:07:20Z"


def test_findings_are_selected_by_time_job_node_and_cause(recorded: Path) -> None:
    def count(**fields: Any) -> int:
        return len(asked(recorded, "findings", **fields)["findings"])

    assert count(job="8801") == count(job="train") == count(job="anna") == 1
    assert count(node="leaf1") == count(cause="ecmp_collision") == 1
    assert count(node="leaf2") == count(cause="incast") == 0
    assert count(job="8801", to="+10s") == 0
    assert count(to="+10s") == count(from_="-5s") == 0


def test_that_none_was_recorded_is_not_that_there_is_none(recorded: Path) -> None:
    """A recorder that was busy, or an older version, may have missed one that a report finds."""
    before, other = (
        asked(recorded, "findings", to="+10s"),
        asked(recorded, "findings", cause="incast"),
    )
    for (note,) in (before["notes"], other["notes"]):
        assert "no such finding was recorded" in note
        assert "a report computes findings again" in note
    assert asked(recorded, "findings")["notes"] == []


def test_an_answer_says_which_part_of_the_time_is_not_recorded(recorded: Path) -> None:
    recorded_range = "the recording: 2026-11-21 14:06:40Z to 2026-11-21 14:08:19Z"
    whole: dict[str, Any] = {"from_": "2001-01-01", "to": "2030-01-01"}
    questions: dict[str, dict[str, Any]] = {
        "findings": {},
        "job": {"job": "8801"},
        "history": {"port": "leaf1 up3"},
    }
    for name, fields in questions.items():
        found = asked(recorded, name, **whole, **fields)
        assert (found["from"], found["to"]) == ("2026-11-21T14:06:40Z", "2026-11-21T14:08:19Z")
        assert found["notes"][:2] == [
            f"from 2001-01-01 is before {recorded_range}",
            f"to 2030-01-01 is after {recorded_range}",
        ]
    assert asked(recorded, "job", job="8801")["notes"] == [], "the default is the last 10 minutes"
    minute = asked(recorded, "findings", from_="14:06", to="14:08:19")
    assert minute["notes"] == [], "14:06 means the start of what was recorded in that minute"


def test_what_is_cut_of_a_finding_is_said() -> None:
    nodes = tuple(f"gpu{number:04}" for number in range(812))
    slow = msgspec.structs.replace(finding("gpu0001/mlx5_0"), victims=nodes)
    known = KnownFinding(slow, tuple(f"{node}/mlx5_0" for node in nodes[:100]))
    record = known_finding_record(known, slow.since_ns)
    assert (len(record.ports), len(record.victims)) == (100, 100)
    assert cut_lists(known) == ["incast:gpu0001/mlx5_0: 100 of its 812 victims are listed"]


def test_links_are_those_of_the_time_the_busiest_first(recorded: Path) -> None:
    found = asked(recorded, "links", at="+40s", ports=["leaf1/*"], limit=3)
    assert found["at"] == "2026-11-21T14:07:20Z"
    assert found["links"][0]["name"] == "leaf1 up3"
    busiest = found["links"][0]
    assert busiest["tx_util"] > 0.9
    assert busiest["peer"].startswith("spine")
    assert busiest["findings"] == ["ecmp_collision:" + busiest["id"]]
    assert busiest["stalled"] is None, "absent is null, not 0"
    assert len(found["links"]) == 3
    assert found["left_out"] > 0
    assert "left out: raise the limit" in found["notes"][0]
    later = asked(recorded, "links", ports=["leaf1/*"], limit=1000)
    assert later["left_out"] == 0
    assert not any(each["findings"] for each in later["links"])


def test_links_by_marks_are_those_with_marks(recorded: Path) -> None:
    found = asked(recorded, "links", at="+40s", by="ecn", limit=1000)
    marks = [max(each["ecn"] or 0, each["cnp"] or 0) for each in found["links"]]
    assert marks
    assert marks == sorted(marks, reverse=True)
    assert marks[-1] > 0
    assert found["left_out"] == 0
    assert asked(recorded, "links", at="+40s", by="errors")["links"] == []


def test_of_a_counter_that_ports_do_not_report_no_link_does_not_mean_none(recorded: Path) -> None:
    """The switches of the demo count no marks; its hosts do."""
    switches = asked(recorded, "links", at="+40s", by="ecn", ports=["leaf1"])
    assert switches["links"] == []
    (note,) = switches["notes"]
    ports = len(asked(recorded, "links", at="+40s", ports=["leaf1"], limit=1000)["links"])
    assert note == f"{ports} of {ports} ports do not report ECN marks or CNPs: not known, not 0"
    assert asked(recorded, "links", at="+40s", by="ecn", ports=["gpu001/mlx5*"])["notes"] == []


def test_why_a_job_is_slow(recorded: Path) -> None:
    found = asked(recorded, "job", job="8801", from_="+20s", to="+40s")
    assert found["job"]["job"] == "job 8801 train (anna)"
    assert [each["cause"] for each in found["findings"]] == ["ecmp_collision"]
    assert found["sent_bps"] > 0
    assert found["sent_before_bps"] > 0
    assert "leaf1 up3" in [each["name"] for each in found["links"]]
    quiet = asked(recorded, "job", job="8801", from_="-10s")
    assert quiet["findings"] == []
    assert "no finding affects the job" in quiet["notes"][0]


def test_jobs_at_a_time(recorded: Path) -> None:
    (found,) = asked(recorded, "jobs")["jobs"]
    assert (found["number"], found["name"], found["user"]) == ("8801", "train", "anna")
    assert len(found["nodes"]) == 4
    assert found["tx_bps"] > 0
    quick = asked(recorded, "jobs", analyse=False)
    assert "step time is null" in quick["notes"][0]
    assert quick["jobs"][0]["step_s"] is None


def test_a_step_time_that_may_be_that_of_several_steps_is_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "fast.fabrec"
    Watching(FAST).record(path, 150)
    for name, fields in (("jobs", {}), ("job", {"job": "fast"})):
        found = asked(path, name, False, **fields)
        (job,) = found.get("jobs") or [found["job"]]
        assert job["step_s"] > 2
        assert f"step_s of {job['job']} may be of several steps under 2 s" in found["notes"]


def test_the_history_of_a_port(recorded: Path) -> None:
    by_name = asked(recorded, "history", port="leaf1 up3", points=20, metrics=["tx_bps", "errors"])
    by_id = asked(recorded, "history", port=by_name["id"], points=20, metrics=["tx_bps", "errors"])
    assert by_name == by_id
    assert by_name["part_s"] == 5
    assert list(by_name["metrics"]) == ["tx_bps", "errors"]
    curve = by_name["metrics"]["tx_bps"]
    assert len(curve["highest"]) == len(curve["mean"]) == len(by_name["times"]) <= 20
    share = [None if v is None else v / by_name["line_rate_bps"] for v in curve["highest"]]
    full = [time for time, v in zip(by_name["times"], share, strict=True) if v and v > 0.95]
    assert full
    assert all("14:06:50" <= time[11:19] <= "14:07:30" for time in full)


def test_the_history_of_a_port_is_that_of_the_asked_range_and_of_the_other_outputs(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link is full from 14:07:01 to 14:07:25, and no more a second later."""
    asked_for: dict[str, Any] = {"port": "leaf1 up3", "metrics": ["tx_bps"], "from_": "14:07:26"}
    found = asked(recorded, "history", **asked_for, to="14:07:32", points=2)
    curve = found["metrics"]["tx_bps"]
    links = [
        asked(recorded, "links", at=f"14:07:{second}", ports=["leaf1/swp7"], limit=1000)["links"]
        for second in range(26, 33)
    ]
    exact = [each["tx_bps"] for (each,) in links]
    assert found["notes"] == []
    assert found["times"] == ["2026-11-21T14:07:26Z", "2026-11-21T14:07:30Z"]
    assert curve["highest"] == [max(exact[:4]), max(exact[4:])]
    assert curve["mean"][1] == pytest.approx(sum(exact[4:]) / 3, rel=1e-5)

    monkeypatch.setattr("fabmon.query.sources._MOST_READS", 0)
    found = asked(recorded, "history", **asked_for, to="14:07:52")
    assert found["times"] == ["2026-11-21T14:07:30Z", "2026-11-21T14:07:40Z"]
    assert "parts of 10 s or more inside the range" in found["notes"][0]
    whole = asked(recorded, "history", port="leaf1 up3", metrics=["tx_bps"])
    assert whole["times"][0] == "2026-11-21T14:06:40Z"
    assert asked(recorded, "history", **asked_for, to="14:07:29")["times"] == []


@pytest.mark.parametrize(
    ("name", "fields", "complaint"),
    [
        ("links", {"limit": 0}, "limit"),
        ("links", {"limit": 1001}, "limit"),
        ("links", {"by": "colour"}, "Invalid enum value 'colour'"),
        ("links", {"path": "/etc/passwd"}, "unknown field `path`"),
        ("links", {"ports": ["a"] * 33}, "length"),
        ("findings", {"job": "x" * 201}, "length"),
        ("findings", {"from": "noon"}, "from noon: write a time such as 14:03"),
        ("findings", {"from": "-1s", "to": "+1s"}, "to (2026-11-21 14:06:41Z) is before from (20"),
        ("findings", {"from": "-1s", "to": "+1s"}, ": +1s counts from the start of the recording"),
        ("findings", {"from": "2001-01-01"}, "from 2001-01-01 is not in the recording: 2026-11-21"),
        ("findings", {"from": "2030-01-01"}, "from 2030-01-01 is not in the recording: 2026-11-21"),
        ("history", {"port": "leaf1 up3", "to": "2001-01-01"}, "to 2001-01-01 is not in the rec"),
        ("links", {"at": "2001-01-01T00:00Z"}, "is not in the recording: 2026-11-21 14:06:40Z"),
        ("links", {"ports": ["nosuch*"]}, "no port matches 'nosuch*': there are gpu001, gpu001/"),
        ("links", {"ports": ["leaf1/*", "laef2"]}, "no port matches 'laef2': did you mean leaf2"),
        ("findings", {"job": "880"}, "no job '880': did you mean 8801?"),
        ("findings", {"job": "llama"}, "no job 'llama': there are job 8801 train (anna)"),
        ("findings", {"job": "ana", "to": "+10s"}, "no job 'ana': did you mean anna?"),
        ("findings", {"node": "leaf"}, "no node 'leaf': did you mean leaf"),
        ("findings", {"node": "x"}, "no node 'x': there are gpu001, gpu002, "),
        (
            "findings",
            {"cause": "ecmp_colision"},
            "no cause 'ecmp_colision': did you mean ecmp_coll",
        ),
        ("job", {}, "missing required field `job`"),
        ("job", {"job": "8802"}, "no job '8802' runs at that time; these run: job 8801 train"),
        ("history", {"port": "leaf1 up33"}, "no port 'leaf1 up33': did you mean leaf1 up3"),
        ("history", {"port": "leaf1 up3", "metrics": ["tx"]}, "no metric 'tx': ask for tx_bps"),
        ("history", {"port": "leaf1 up3", "points": 1}, "points"),
        ("history", {"port": "leaf1 up3", "from": "-0s"}, "the range is empty"),
        ("delete", {}, "no question 'delete': ask one of status, findings"),
        ("status", {"question": "links"}, "is the name of the question"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    recorded: Path, name: str, fields: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(Exception, match=r".") as refused:
        asyncio.run(query(Session(load(None)), (recorded,), None, False, question_of(name, fields)))
    assert complaint in str(refused.value)


def test_names_are_replaced_on_request(recorded: Path) -> None:
    text = json.dumps([asked(recorded, name, redact=True) for name in ("status", "findings")])
    text += json.dumps(asked(recorded, "links", redact=True, limit=1000))
    assert "gpu00" not in text
    assert "anna" not in text
    assert "incident" not in text


def test_the_program_prints_the_answer_and_changes_nothing(recorded: Path) -> None:
    before = recorded.read_bytes(), sorted(recorded.parent.iterdir())
    done = fabmon_here("query", "job", str(recorded), "--job", "8801", "--from", "14:07")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["from"] == "2026-11-21T14:07:00Z"
    assert (recorded.read_bytes(), sorted(recorded.parent.iterdir())) == before
    wrong = fabmon_here("query", "links", str(recorded), "--by", "colour")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert fabmon_here("query").stderr.startswith("fabmon: ask something: status, findings, links")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["job"], "fabmon query job: add --job NUMBER"),
        (["history"], "fabmon query history: add --port PORT"),
        (["status", "--job", "3"], "fabmon query status has no --job: see fabmon query --help"),
        (["findings", "--metric", "tx_bps"], "fabmon query findings has no --metric"),
        (["links", "--limit", "0"], "'--limit': 0 is not in the range 1<=x<=1000"),
        (["links", "--by", "colour"], "'--by': 'colour' is not one of 'util', 'pause'"),
    ],
)
def test_the_program_names_the_option_that_is_wrong(words: list[str], complaint: str) -> None:
    done = fabmon_here("query", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_two_sources_are_not_asked_at_once(recorded: Path) -> None:
    with pytest.raises(UsageError, match="not both"):
        asyncio.run(
            query(
                Session(load(None)), (recorded,), Path("x.sock"), False, question_of("status", {})
            )
        )


def test_numbers_of_a_recorder_that_was_too_busy_are_said_to_be_recorded(
    busy: Path, recorded: Path
) -> None:
    """A report computes them again from every tick: its worst moment may be another one."""
    notes = asked(busy, "findings")["notes"]
    assert any("too busy to analyse every tick" in each and "report" in each for each in notes)
    assert asked(recorded, "findings")["notes"] == []
