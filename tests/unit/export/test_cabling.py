"""The configured cabling applies to exports and replays as it does live."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fabmon.fabric.model import Host
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.reading.reader import Recording
from fabmon.recording.writing.writer import Writer
from tests.builders import START_NS, frame, hello, port, tick, up
from tests.unit.export.test_rates import exported, lines_of
from tests.unit.test_cli import fabmon_here

NAMES = ("gpu1", "gpu2")


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Record two hosts that do not know the other end of their cables."""
    path = tmp_path / "a.fabrec"
    hosts = tuple(Host(name=name) for name in NAMES)
    record = SessionRecord(started_ns=START_NS, interval_s=1.0, hosts=hosts)
    writer = Writer.create(path, record)
    for seq in range(5):
        hellos = {name: hello(port("eth0")) for name in NAMES} if seq == 0 else {}
        frames = {name: frame(seq, 1, seq * 1000, seq * 1000, 0) for name in NAMES}
        writer.write(tick(seq, frames, hellos, up(*NAMES) if seq == 0 else ()))
    writer.close()
    return path


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "fabmon.toml"
    path.write_text('[topology]\ncables = ["gpu1/eth0 gpu2/eth0"]\n')
    return str(path)


def peers(text: str) -> dict[str, str | None]:
    ticks = [line for line in map(json.loads, text.splitlines()) if line["type"] == "tick"]
    return {f"{link['node']}/{link['port']}": link["peer"] for link in ticks[-1]["links"]}


def test_exports_and_replays_use_the_configured_cables(
    recorded: Path, config: str, tmp_path: Path
) -> None:
    known = {"gpu1/eth0": "gpu2/eth0", "gpu2/eth0": "gpu1/eth0"}
    path = exported(recorded, tmp_path / "b.jsonl", "--config", config)
    assert peers(path.read_text()) == known
    played = fabmon_here(
        "replay", str(recorded), "--format", "jsonl", "--speed", "max", "--config", config
    )
    assert peers(played.stdout) == known
    cables = tmp_path / "cables.csv"
    cables.write_text("gpu1,eth0,gpu2,eth0\n")
    given = ("--format", "jsonl", "--speed", "max", "--topology", str(cables))
    assert peers(fabmon_here("replay", str(recorded), *given).stdout) == known


def test_configured_cables_are_redacted(recorded: Path, config: str, tmp_path: Path) -> None:
    path = exported(recorded, tmp_path / "b.jsonl", "--config", config, "--redact")
    assert peers(path.read_text()) == {"host-1/eth0": "host-2/eth0", "host-2/eth0": "host-1/eth0"}
    assert "gpu" not in path.read_text()


def test_a_cut_keeps_the_cables(recorded: Path, config: str, tmp_path: Path) -> None:
    cut = tmp_path / "cut.fabrec"
    done = fabmon_here("cut", str(recorded), "-o", str(cut), "--config", config)
    assert done.returncode == 0, done.stderr
    with Recording(cut) as opened:
        topology = opened.topology()
    assert topology is not None
    assert {each.node: each.peer for each in topology.ports} == {"gpu1": 1, "gpu2": 0}


@pytest.mark.parametrize("style", ["jsonl", "csv", "openmetrics"])
def test_links_are_selected_by_original_names_when_redacted(
    recorded: Path, tmp_path: Path, style: str
) -> None:
    to = tmp_path / f"b.{style}"
    path = exported(recorded, to, "--links", "node:gpu2", "--redact")
    text = path.read_text()
    assert "host-2" in text
    assert "gpu" not in text
    if style == "jsonl":
        ticks = [line for line in lines_of(path) if line["type"] == "tick"]
        assert {link["node"] for tick in ticks for link in tick["links"]} == {"host-2"}


@pytest.mark.parametrize("command", ["record", "replay", "report"])
def test_commands_accept_a_topology(command: str) -> None:
    assert "--topology" in fabmon_here(command, "--help").stdout
