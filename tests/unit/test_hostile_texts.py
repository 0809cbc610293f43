"""A switch and a user who call their ports and jobs as they like: text in every output, no more.

The names come as they do from a node, on the wire, and from squeue; a collision on the ports of
that switch makes a finding of them, which goes everywhere.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from click.testing import CliRunner
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from fabmon.alerts.alert import Alert, AlertBook, AlertRules
from fabmon.alerts.alertmanager import posted_alert
from fabmon.alerts.metrics_server import watch_metrics
from fabmon.alerts.notifier import (
    BUILT_IN,
    alert_record,
    filled,
    load_template,
    slack_values,
    values,
)
from fabmon.alerts.settings import AlertsConfig, SyslogReceiver
from fabmon.alerts.system_log import SyslogTransport, _facts, _message
from fabmon.analysis.finding import Change
from fabmon.analysis.scene import Scene
from fabmon.cli.main import cli
from fabmon.fabric.jobs.job import JobReport
from fabmon.fabric.jobs.squeue_output import parse_json
from fabmon.fabric.openmetrics import OPENMETRICS, PROMETHEUS
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Hello, decode
from fabmon.recording.writing.writer import Writer
from fabmon.scenes.pipeline import finding_notes
from tests.requirements import need_package
from tests.tui.recordings import Watching

SWITCH = "leaf1"
NAMES = {
    "escapes": "\x1b[31m\x1b]0;x\x07\x9b2J\x00",
    "right to left": "\u202egnp.exe\u2066\u200f",
    "formula": "=cmd|'/c calc'!A1",
    "full-width formula": "\uff1d1+1",
    "minus": "-2+3",
    "html": "</script><script>boom()</script><img src=x onerror=boom()>",
    "markdown": "[click](http://192.0.2.1/x) ![x](http://192.0.2.1/y)",
    "mention": "<!channel> <@U1> @everyone",
    "label": 'x",job="y"} 1\n# EOF\nx{a="',
    "lines": "a\r\nb\u2028c\x85d",
    "template": "{text} %s ${HOME} `id` $(id)",
    "long": "x" * 65536,
}
FORMULA = set("=+-@\t\r\uff1d\uff0b\uff0d\uff20")
"""What a cell begins with that some spreadsheet computes."""
MOST_CHARACTERS = 4096
"""Of any text in any output; a name has 400."""


class Watched(NamedTuple):
    """What was watched: a recording, the scene with the finding, and its alert."""

    name: str
    recording: Path
    scene: Scene
    alert: Alert


def named(hello: Hello, node: str, name: str) -> Hello:
    """What a node sends where the switch and its ports have such names, as it is decoded."""
    message = json.loads(msgspec.json.encode(["hello", hello]))
    about = message[1]
    for block in about["blocks"]:
        for item in block["objects"]:
            info = item.get("info", {})
            if node == SWITCH and item.get("port"):
                # In front: of a cell the first character counts.
                item["port"] = name + item["port"]
                info["driver"] = info["alias"] = name
            peer = info.get("peer") or {}
            if peer.get("node") == SWITCH and peer.get("port"):
                peer["port"] = name + peer["port"]
    if node == SWITCH:
        about["hostname"] = about["kernel"] = name
    made = decode(json.dumps(message).encode())
    assert isinstance(made, Hello)
    return made


def jobs_named(name: str, nodes: str) -> JobReport:
    job = {"job_id": 8801, "job_state": "RUNNING", "nodes": nodes}
    job |= {"name": name, "user_name": name, "partition": name}
    answer = json.dumps({"jobs": [job]}).encode()
    return JobReport(source="squeue", read_ns=1, jobs=parse_json(answer).jobs)


@pytest.fixture(scope="module", params=NAMES, ids=list(NAMES))
def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    name = NAMES[request.param]
    path = tmp_path_factory.mktemp("hostile") / "a.fabrec"
    watching = Watching()
    writer = Writer.create(path, watching.session)
    book = AlertBook(AlertRules.of(AlertsConfig(), SyslogReceiver()))
    found: tuple[Scene, Alert] | None = None
    report = jobs_named(name, ",".join(each.name for each in watching.feed.hosts[:4]))
    for _ in range(34):
        tick: Tick = watching.feed.step()
        hellos = tuple((node, named(hello, node, name)) for node, hello in tick.hellos)
        tick = msgspec.structs.replace(tick, hellos=hellos, jobs=report)
        scene = watching.judge(tick)
        alerts = book.accept(scene)
        writer.write(tick, scene.snapshot, finding_notes(scene))
        if scene.findings and alerts:
            found = scene, next(iter(alerts.values()))
    writer.close()
    assert found is not None
    return Watched(name, path, *found)


def printed(watched: Watched, *arguments: str) -> str:
    """What a command prints of the recording."""
    where = [str(watched.recording) if each == "FILE" else each for each in arguments]
    done = CliRunner().invoke(cli, where, catch_exceptions=False)
    assert done.exit_code in (0, 4, 5), done.output
    return done.stdout


def check_text(text: str, *, is_document: bool = False) -> None:
    """A text that a terminal, a browser or a log shows as it is, and in bounds."""
    for line in text.split("\n") if is_document else [text]:
        plain = line.replace("\xa0", " ").replace("\u202f", " ").replace("\u2009", " ")
        assert plain.isprintable(), repr(line[:200])
    assert is_document or len(text) <= MOST_CHARACTERS


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from texts_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts_in(each)


def check_json(text: str) -> list[str]:
    """All texts of JSON lines, or of one document."""
    try:
        found = [json.loads(text)]
    except ValueError:
        found = [json.loads(line) for line in text.splitlines()]
    texts = list(texts_in(found))
    for each in texts:
        check_text(each)
    return texts


def test_on_a_terminal(watched: Watched) -> None:
    for command in ("replay --once --format table FILE", "info FILE", "verify FILE"):
        check_text(printed(watched, *command.split()), is_document=True)


def test_as_json(watched: Watched) -> None:
    shown = check_json(printed(watched, *["replay", "--once", "--format", "json", "FILE"]))
    # The names do arrive.
    assert any(SWITCH in each and len(each) > len(f"{SWITCH}/swp12") for each in shown)
    check_json(printed(watched, *["export", "--format", "jsonl", "FILE"]))


@pytest.mark.parametrize(
    "question",
    ["status FILE", "findings FILE", "links FILE", "jobs FILE", "job FILE --job 8801"],
)
def test_in_an_answer(watched: Watched, question: str) -> None:
    check_json(printed(watched, "query", *question.split()))


def test_in_a_spreadsheet(watched: Watched) -> None:
    text = printed(watched, *["export", "--format", "csv", "FILE"])
    check_text(text, is_document=True)
    for row in csv.reader(io.StringIO(text)):
        for cell in row:
            assert cell[:1] not in set("=+-@\t\r\uff1d\uff0b\uff0d\uff20") or is_number(cell), cell[
                :50
            ]
            check_text(cell)


def is_number(text: str) -> bool:
    return re.fullmatch(r"-?[\d.]+(e[+-]\d+)?", text) is not None


def test_in_parquet(watched: Watched, tmp_path: Path) -> None:
    need_package("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    printed(watched, *["export", "--format", "parquet", "FILE", "-o"], str(path))
    for column in pq.read_table(path).columns:
        for value in {each for each in column.to_pylist() if isinstance(each, str)}:
            check_text(value)


def test_in_metrics(watched: Watched) -> None:
    pages = [
        printed(watched, *["export", "--format", "openmetrics", "FILE"]),
        watch_metrics(watched.scene, 1.0, OPENMETRICS),
    ]
    for page in pages:
        check_text(page, is_document=True)
        for family in text_string_to_metric_families(page):  # type: ignore[no-untyped-call]
            for sample in family.samples:
                for value in sample.labels.values():
                    check_text(value)
    check_text(watch_metrics(watched.scene, 1.0, PROMETHEUS), is_document=True)


class Tags(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def test_on_a_page(watched: Watched, tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    printed(watched, "report", "FILE", "-o", str(path))
    page = Tags()
    page.feed(path.read_text())
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    links = [str(value) for name, value in page.attributes if name == "href"]
    assert not [each for each in links if "192.0.2" in each]


@pytest.mark.parametrize("change", [Change.OPEN, Change.CLOSE])
def test_in_alerts(watched: Watched, change: Change) -> None:
    alert = watched.alert
    for made in (
        msgspec.json.encode(alert_record(change, alert, "pod7")),
        msgspec.json.encode(posted_alert(alert, "pod7", "http://wiki/", 2 * 10**18)),
        *(body(name, change, alert) for name in BUILT_IN),
    ):
        check_json(made.decode())


def body(template: str, change: Change, alert: Alert) -> bytes:
    known = values(change, alert, "pod7", "http://wiki/")
    fields = {"topic": "t", "key": "k", "routing_key": "k"}
    shown = slack_values(known) if template == "slack" else known
    return msgspec.json.encode(filled(load_template(template), {**shown, **fields}))


def test_in_slack_nobody_is_notified(watched: Watched) -> None:
    assert b"<" not in body("slack", Change.OPEN, watched.alert)


def test_in_teams_no_name_is_a_link(watched: Watched) -> None:
    """A TextBlock reads Markdown; what nodes and users say is in others."""
    (attached,) = json.loads(body("teams", Change.OPEN, watched.alert))["attachments"]
    marked = [each["text"] for each in attached["content"]["body"] if each["type"] == "TextBlock"]
    assert marked == ["pod7 http://wiki/"]


def test_in_the_system_log(watched: Watched) -> None:
    facts = _facts(Change.OPEN, watched.alert, "pod7")
    message = _message(Change.OPEN, watched.alert)
    for text in (message, *facts.values()):
        check_text(text)
    line = SyslogTransport(SyslogReceiver(), "pod7")._line(11, facts, message).decode()
    check_text(line)
    # RFC 5424: one element of structured data, whatever is in its values.
    structure = re.search(r'alert \[[^ \]]+(?: [^= \]"]+="(?:[^"\\\]]|\\.)*")*\] ', line)
    assert structure is not None
    assert line[structure.end() :] == message[: len(line) - structure.end()]
