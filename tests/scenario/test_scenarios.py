"""Every scenario: a topology, traffic, faults, what is visible, and exactly what is told.

`[expect]` says for how many `seconds` it runs and which causes open, each once a root; the golden
beside it has the whole text, evidence and advice of every finding, as it opens.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fabmon.analysis.analyst import Analyst
from fabmon.analysis.finding import Change, Finding
from fabmon.cli.config import load
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import Scenario
from fabmon.history.history import History
from tests.goldens import check_golden

HERE = Path(__file__).parent
SCENARIOS = sorted(HERE.glob("*.toml"))


class Expected(msgspec.Struct, forbid_unknown_fields=True):
    """What a scenario asks for; `findings` in the order in which their first ones open."""

    seconds: int
    findings: tuple[str, ...]


def read(path: Path) -> tuple[Scenario, Expected]:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    expected = msgspec.convert(table.pop("expect"), Expected)
    return msgspec.convert(table, Scenario), expected


def opened(scenario: Scenario, seconds: int) -> list[tuple[int, Finding, tuple[str, ...]]]:
    """When each finding opened, and the ports that it lights."""
    feed = DemoFeed(scenario)
    history = History(feed.hosts)
    analyst = Analyst(load(Path("/dev/null")).thresholds)
    told = []
    for second in range(seconds):
        scene = analyst.accept(history.accept(feed.step()))
        ports = scene.moment.fabric.ports
        for change, finding in scene.changes:
            if change is Change.OPEN:
                told.append((second, finding, tuple(ports[row].id for row in finding.rows)))
    return told


def as_golden(second: int, finding: Finding, ports: tuple[str, ...]) -> dict[str, Any]:
    said = msgspec.to_builtins(finding)
    hidden = ("rows", "since_ns", "until_ns", "unless")
    return {
        "second": second,
        **{name: value for name, value in said.items() if name not in hidden},
        "ports": list(ports[:4]),
    }


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    scenario, expected = read(path)
    told = opened(scenario, expected.seconds)
    causes = tuple(dict.fromkeys(finding.cause for _, finding, _ in told))
    assert sorted(causes) == sorted(expected.findings), [each.text for _, each, _ in told]
    keys = [finding.key for _, finding, _ in told]
    assert len(keys) == len(set(keys)), "a finding opens once"
    text = msgspec.json.format(msgspec.json.encode([as_golden(*each) for each in told]), indent=2)
    check_golden(HERE / "goldens" / f"{path.stem}.json", text.decode() + "\n")


def test_there_are_at_least_forty() -> None:
    assert len(SCENARIOS) >= 40
