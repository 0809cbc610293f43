"""--redact removes all names from the output and changes nothing else."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from collectors import wire
from collectors.wire import LOGGED, Object
from fabmon.analysis.finding import Evidence, Finding
from fabmon.fabric.model import SWITCH, Host
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.fabric.wire.messages import Notice
from fabmon.history.history import History
from fabmon.recording.format.frames import FrameKind
from fabmon.recording.format.records import Note, SessionRecord
from fabmon.recording.format.sections import decompress
from fabmon.recording.reading.reader import Recording
from fabmon.recording.reading.recorded_findings import RecordedFindings
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.writer import Writer
from fabmon.scenes.findings_at_the_time import findings_open_at
from fabmon.scenes.recorded_past import RecordedPast
from fabmon.session.config import load
from fabmon.session.printing import redacted_log
from fabmon.session.session import Session
from tests.builders import SECOND_NS, START_NS, frame, hello, neighbour, port, tick, up
from tests.unit.export.test_rates import exported, lines_of
from tests.unit.export.test_report import reported
from tests.unit.feeds.wire_lines import frame_line, hello_line
from tests.unit.test_cli import fabmon, fabmon_here

SECRETS = (
    *("aurora", "acme", "alice", "vega", "lustre-oss", "login7", "rack12", "project-x"),
    *("10.1.2.", "fd00:", "aa:bb:cc", "aabb.cc", "b859:9f03", "5e:77", "7f3a9c", "/home"),
)
"""Parts of the names and addresses below that must not be in the output, in any case of letters."""


def recording(path: Path) -> Path:
    """Record two hosts on a leaf with LLDP and a lost node, with names in every possible place."""
    hosts = [
        Host(name="aurora-gpu10.acme.example", address="10.1.2.3", user="alice", group="rack12"),
        Host(name="aurora-gpu2.acme.example", command="ssh -J alice@login7", secret="/home/a/s"),
        Host(name="vega-leaf1", role=SWITCH, speeds=(("*", 100e6),)),
    ]
    facts: dict[str, Any] = {
        "driver": "mlx5_core",
        "guid": "b859:9f03:0012:3456",
        "description": "to project-x",
        "addresses": ["10.1.2.3/24", "fd00::7"],
        "serial": "7F3A9C",
        "peer": {"node": "VEGA-LEAF1.acme.example", "port": "swp1", "port_name": "to aurora-gpu10"},
    }
    pairs = Object(
        "queue_pairs/eth0",
        "queue_pairs",
        None,
        {"port": "eth0", "processes": [{"comm": "project-x", "pid": 7, "job": "alice-17"}]},
        (),
    )
    lldp = Object(
        "lldp/eth0/1",
        "neighbour",
        None,
        {"dev": "eth0", "peer_node": "lustre-oss3.acme.example", "peer_port": "5e:77:00:00:00:01"},
        (),
    )
    first = hello(
        port("eth0", "aa:bb:cc:00:00:01", **facts),
        lldp,
        pairs,
        hostname="aurora-gpu10",
        boot_id="7f3a9c00-0000-4000-8000-000000000001",
        kernel="6.1.0-18-acme",
        reached_at="10.1.2.3",
    )
    second = hello(port("eth0", "aa:bb:cc:00:00:02"), hostname="aurora-gpu2.acme.example")
    leaf = hello(
        port("swp1", "aabb.cc00.0003", alias="aurora-gpu10 eth0"),
        port("swp2"),
        neighbour("swp1", "aa:bb:cc:00:00:01"),
        neighbour("swp2", "aa:bb:cc:00:00:02"),
    )
    names = [host.name for host in hosts]
    hellos = dict(zip(names, (first, second, leaf), strict=True))
    record = SessionRecord(
        started_ns=START_NS,
        interval_s=1.0,
        hosts=tuple(hosts),
        tool="fabmon 0.1.0",
        recorder="login7.acme.example",
        title="project-x",
    )
    reason = "alice@10.1.2.4: /home/alice/.ssh/id refused by vega-leaf1.acme.example"
    lost = NodeStatus(names[1], NodeState.LOST, START_NS, reason, "no route")
    notice = Notice("absent", "netdev", "eth0", "netdev_tx_drops", "denied", "alice may not")
    bookmark = Note(
        kind="bookmark", time_ns=START_NS + 5 * SECOND_NS, seq=5, text="alice starts project-x"
    )
    opened = Note(
        kind="finding",
        time_ns=START_NS + 6 * SECOND_NS,
        seq=6,
        text=reason,
        change="open",
        ports=(f"{names[0]}/eth0",),
        finding={"cause": "node_lost", "subject": names[1], "text": reason, "victims": [names[0]]},
    )
    lldp_switch, nobody = "lustre-oss3.acme.example/swp9", "acme-core7/swp9"
    found = {
        1: (note(1, "incast", lldp_switch), note(1, "ecmp_collision", nobody)),
        5: (bookmark,),
        6: (opened, note(6, "oversubscription", "acme-spine4/uplinks")),
        7: (note(7, "straggler", "aurora-gpu77"), note(7, "uneven_rails", f"{names[0]} r1")),
    }
    writer = Writer.create(path, record)
    history = History(hosts)
    for seq in range(40):
        moved = int(seq * 12e6)
        frames = {
            names[0]: frame(seq, 1, moved, moved, 0),
            names[1]: frame(seq, 1, moved, moved, 0),
            names[2]: frame(seq, 1, moved, moved, 0, int(seq < 20), moved, moved, 0),
        }
        if seq > 10:
            del frames[names[1]]
        each = tick(
            seq,
            frames,
            hellos if seq == 0 else {},
            up(*names) if seq == 0 else (lost,) if seq == 12 else (),
        )
        if seq == 3:
            each = msgspec.structs.replace(each, notices=((names[0], notice),))
        writer.write(each, history.accept(each), found.get(seq, ()))
    writer.close()
    return path


def note(seq: int, cause: str, subject: str) -> Note:
    """A note of a finding that opens, with every field."""
    time_ns = START_NS + seq * SECOND_NS
    finding = Finding(
        cause=cause,
        severity="warning",
        subject=subject,
        rows=(0,),
        text=f"{subject} is full: alice of project-x",
        evidence=(Evidence("from", "aurora-gpu10"),),
        advice="ask alice",
        confidence=0.9,
        since_ns=time_ns,
        victims=("aurora-gpu2/eth0",),
    )
    return Note(
        kind="finding",
        time_ns=time_ns,
        seq=seq,
        text=finding.text,
        change="open",
        ports=(subject,) if "/swp" in subject else (),
        finding=msgspec.to_builtins(finding),
    )


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recording(tmp_path_factory.mktemp("named") / "acme.fabrec")


def leaks(data: bytes) -> list[str]:
    text = data.decode("utf-8", "replace").lower()
    return [secret for secret in SECRETS if secret.lower() in text]


def plain(path: Path) -> bytes:
    """All texts of a recording: sections and JSON, decompressed."""
    content = path.read_bytes()
    with Recording(path) as opened:
        for entry in opened.entries():
            payload = opened.payload(entry)
            if entry.header.kind in (FrameKind.BLOCK, FrameKind.MINUTE, FrameKind.INDEX):
                continue
            content += decompress(payload) if payload else b""
        content += msgspec.json.encode([tick.frames for tick in opened.ticks()], enc_hook=list)
        content += msgspec.json.encode(opened.sessions)
    return content


def test_the_recording_has_all_of_them(named: Path) -> None:
    assert set(leaks(plain(named))) == set(SECRETS)


@pytest.mark.parametrize("style", ["csv", "jsonl", "openmetrics", "parquet"])
def test_exports_have_no_names(named: Path, tmp_path: Path, style: str) -> None:
    path = exported(named, tmp_path / f"a.{style}", "--redact")
    data = path.read_bytes()
    if style == "parquet":
        data += json.dumps(pq.read_table(path).to_pylist(), default=str).encode()
    assert leaks(data) == []
    assert b"host-1" in data
    assert b"switch-1" in data


def test_reports_have_no_names(named: Path, tmp_path: Path) -> None:
    html = reported(named, tmp_path / "a.html", "--redact")
    assert leaks(html.encode()) == []
    assert "host-1" in html
    assert "Node lost" in html
    assert leaks(reported(named, tmp_path / "b.html").encode()) != []


def test_cuts_have_no_names(named: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.fabrec"
    done = fabmon_here("cut", str(named), "--from", "+1s", "--redact", "-o", str(cut))
    assert done.returncode == 0, done.stderr
    assert leaks(plain(cut)) == []
    with Recording(cut) as opened:
        assert [host.name for host in opened.hosts] == ["host-2", "host-1", "switch-1"]
        assert {note.text for note in opened.notes()} == {
            "bookmark",
            "node_lost host-1",
            "incast device-1/swp9",
            "ecmp_collision device-2/swp9",
            "oversubscription device-3/uplinks",
            "straggler device-4",
            "uneven_rails host-2 r1",
        }


def test_earlier_findings_are_shown_beside_those_of_today(named: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.fabrec"
    done = fabmon_here("cut", str(named), "--from", "+3s", "--redact", "-o", str(cut))
    assert done.returncode == 0, done.stderr
    with Recording(cut) as opened:
        early = [note for note in opened.notes() if note.time_ns == START_NS + 3 * SECOND_NS]
        history = History(opened.hosts)
        snapshot = [
            history.accept(tick) for tick in opened.ticks(until_ns=START_NS + 4 * SECOND_NS)
        ]
        then = findings_open_at(RecordedFindings(early), (), snapshot[-1])
    assert {(each.cause, each.subject, each.text) for each in then} == {
        ("incast", "device-1/swp9", ""),
        ("ecmp_collision", "device-2/swp9", ""),
    }
    assert {each.since_ns for each in then} == {START_NS + SECOND_NS}


async def test_the_screen_redacts_earlier_findings(named: Path) -> None:
    with Timeline([named]) as timeline:
        past = RecordedPast(timeline, Session(load(None), redactor=Redactor(timeline.hosts)))
        contents = await past.look()
        shares: list[float] = []
        steady = await past.study(0, contents.until_ns, None, shares.append)
        one = await past.study(0, contents.until_ns, {"host-2/eth0"}, shares.append)
        await past.close()
    assert leaks(msgspec.json.encode(contents.notes)) == []
    assert leaks(msgspec.json.encode(steady)) == []
    assert "host-1/eth0" in {each.name for each in steady.of("link")}
    assert [each.name for each in one.of("link")] == ["host-2/eth0"]
    assert "incast device-1/swp9" in {note.text for note in contents.notes}


def test_a_replay_shows_no_names(named: Path) -> None:
    done = fabmon_here("replay", str(named), "--redact", "--format", "table")
    assert leaks(done.stdout.encode()) == []
    assert "host-2" in done.stdout


def without_texts(value: Any) -> Any:
    """A line without texts: numbers, states and counts."""
    if isinstance(value, dict):
        return {
            key: without_texts(item) for key, item in value.items() if key not in ("text", "rates")
        }
    if isinstance(value, list):
        return [without_texts(item) for item in value]
    return "" if isinstance(value, str) else value


def test_everything_else_stays_as_it_was(named: Path, tmp_path: Path) -> None:
    before = lines_of(exported(named, tmp_path / "a.jsonl"))
    after = lines_of(exported(named, tmp_path / "b.jsonl", "--redact"))
    assert [without_texts(line) for line in after] == [without_texts(line) for line in before]
    links = [line["links"] for line in after if line["type"] == "tick"][-1]
    peers = {f"{link['node']}/{link['port']}": link["peer"] for link in links}
    assert peers["host-2/eth0"] == "switch-1/swp1"
    assert peers["switch-1/swp2"] == "host-1/eth0"


def test_names_of_nodes_are_not_on_standard_error(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    said = "echo aurora-gpu2.acme.example: alice may not >&2; exit 3"
    hosts.write_text(f"aurora-gpu[1-3] command=\"sh -c '{said}'\"\n")
    done = fabmon("--hosts", str(hosts), "--redact", "--format", "jsonl", "--duration", "2")
    # A line names those that failed in the same moment.
    lines = done.stderr.splitlines()
    assert lines
    assert all(re.match(r"fabmon: host-\[?[123]", line) for line in lines)
    assert [each for each in SECRETS if each in done.stderr.lower()] == []


def test_what_is_logged_of_one_node_is_without_its_name(tmp_path: Path) -> None:
    """As of a node whose kernel logs more than is taken."""
    lines, hosts = tmp_path / "lines", tmp_path / "hosts.txt"
    logged = [wire.notice(LOGGED, "kernel_log", "eth0", str(n), "xid_79") for n in range(300)]
    lines.write_bytes(b"".join([hello_line(hostname="aurora-gpu1"), frame_line(1), *logged]))
    hosts.write_text(f"aurora-gpu1 command=\"sh -c 'cat {lines}; sleep 9'\"\n")
    done = fabmon("--hosts", str(hosts), "--redact", "--format", "jsonl", "--duration", "3")
    assert "host-1: its kernel logs too much" in done.stderr
    assert [each for each in SECRETS if each in done.stderr.lower()] == []


def test_the_address_of_a_server_is_not_on_standard_error() -> None:
    url = "http://prometheus.acme.invalid:9090"
    done = fabmon("--prometheus", url, "--redact", "--once", "--host", "aurora-gpu1")
    assert done.stderr.startswith("fabmon: no address for device-1: ")
    assert "acme" not in done.stderr


def test_an_internal_error_is_logged_without_names(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("test.redacted")
    log.addHandler(logging.StreamHandler(sys.stderr))
    with redacted_log(Redactor([Host(name="aurora-gpu2")])):
        try:
            raise KeyError("project-x")
        except KeyError:
            log.exception("%s: internal error, 100 %%", "aurora-gpu2")
    line = capsys.readouterr().err
    assert line.startswith("host-1: internal error, 100 %: KeyError at test_redaction.py:")
    assert "project-x" not in line
