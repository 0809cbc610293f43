"""Every scenario: a topology, traffic, faults, what is visible, and exactly what is reported.

`[expect]` says for how many `seconds` it runs and which causes open, each once a root; the golden
beside it has the whole text, evidence and advice of every finding, as it opens. Where all faults
end it runs on until every finding must have closed.
"""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fabmon.analysis.causes import CAUSES
from fabmon.analysis.evidence.detector_input import TICKS
from fabmon.analysis.finding import Change, Finding, to_stored
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import Scenario
from fabmon.session.config import load
from tests.builders import new_pipeline
from tests.goldens import check_golden, readable_json

HERE = Path(__file__).parent
SCENARIOS = sorted(HERE.glob("*.toml"))
THRESHOLDS = load(Path("/dev/null")).thresholds
LOOKS_BACK_S: dict[str, int] = {"straggler": 40}
"""How long a condition lasts after its fault, where it is more than the last ten ticks. A cable
that flaps is believed for two minutes more, a counter that sticks for as long as it does."""


class Expected(msgspec.Struct, forbid_unknown_fields=True):
    """What a scenario asks for; `findings` in the order in which their first ones open."""

    seconds: int
    findings: tuple[str, ...]


def read(path: Path) -> tuple[Scenario, Expected]:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    expected = msgspec.convert(table.pop("expect"), Expected)
    return msgspec.convert(table, Scenario), expected


Opened = tuple[int, Finding, tuple[str, ...]]
"""When a finding opened, and the ports that it lights."""


def played(scenario: Scenario, seconds: int) -> tuple[list[Opened], dict[str, int]]:
    """What opened, and when each key was closed."""
    feed = DemoFeed(scenario)
    pipeline = new_pipeline(feed.hosts)
    opened, closed = [], {}
    for second in range(seconds):
        scene = pipeline.accept(feed.step())
        ports = scene.snapshot.fabric.ports
        for change, finding in scene.changes:
            if change is Change.OPEN:
                opened.append((second, finding, tuple(ports[row].id for row in finding.rows)))
            elif change is Change.CLOSE:
                closed[finding.key] = second
    return opened, closed


def must_close_by(scenario: Scenario) -> dict[str, float]:
    """The second by which findings of each cause are closed; nothing where a fault stays."""
    ends = [fault.at + (fault.duration or math.inf) for fault in scenario.fault]
    if not ends or not math.isfinite(max(ends)):
        return {}
    waits = THRESHOLDS.findings.close_after_s + THRESHOLDS.findings.wait_at_most_s
    return {
        cause: max(ends) + waits + LOOKS_BACK_S.get(cause, TICKS)
        for cause in CAUSES
        if cause not in ("flapping_link", "saturated_counter")
    }


def as_golden(second: int, finding: Finding, ports: tuple[str, ...]) -> dict[str, Any]:
    fields = to_stored(finding)
    hidden = ("rows", "since_ns", "until_ns", "seen_ns", "opened_as")
    return {
        "second": second,
        **{name: value for name, value in fields.items() if name not in hidden},
        "ports": list(ports[:4]),
    }


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    scenario, expected = read(path)
    by = must_close_by(scenario)
    last = max([by[cause] for cause in expected.findings if cause in by], default=0)
    opened, closed = played(scenario, max(expected.seconds, math.ceil(last) + 1))
    causes = tuple(dict.fromkeys(finding.cause for _, finding, _ in opened))
    assert sorted(causes) == sorted(expected.findings), [each.text for _, each, _ in opened]
    keys = [finding.key for _, finding, _ in opened]
    assert len(keys) == len(set(keys)), "a finding opens once"
    for _, finding, _ in opened:
        if finding.cause in by:
            assert closed.get(finding.key, math.inf) <= by[finding.cause], finding.key
    text = readable_json([as_golden(*each) for each in opened])
    check_golden(HERE / "goldens" / f"{path.stem}.json", f"{text}\n")


def test_there_are_at_least_forty() -> None:
    assert len(SCENARIOS) >= 40
