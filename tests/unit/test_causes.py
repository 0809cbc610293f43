"""The declarations of causes: complete, and the same in the docs, the thresholds and the demo."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from fabmon.analysis.causes import (
    CAUSES,
    brief_loss,
    causes_with,
    loss_and_confidence,
    lost_bandwidth,
    title,
    title_at,
)
from fabmon.analysis.finding import SEVERITIES, Cause, Condition, Trait
from fabmon.analysis.rule_texts import RULES
from fabmon.feeds.demo.faults import KINDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
THRESHOLDS = tomllib.loads((ROOT / "config" / "thresholds.toml").read_text(encoding="utf-8"))
KEY = re.compile(r"`([a-z_]+)\.([a-z_]+)` (-?[0-9.]+)")


def section(cause: Cause) -> str:
    """What docs/findings.md says of a cause."""
    _, heading, rest = PAGE.partition(f"\n### {cause.title} (`{cause.name}`)\n")
    assert heading, f"docs/findings.md has no section for {cause.name}"
    return re.split(r"\n##+ ", rest)[0]


def row(cause: Cause, name: str) -> str:
    """The text of a row of its table."""
    found = re.findall(rf"^\| {name} \| (.+) \|$", section(cause), re.M)
    assert found, f"{cause.name}: no row {name}"
    return "; ".join(found)


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES.keys())
def test_the_docs_have_a_table_with_the_thresholds_of_every_cause(cause: Cause) -> None:
    assert row(cause, "Severity").split(";")[0] == cause.severity
    assert row(cause, "Rule")
    assert row(cause, "Inputs")
    assert row(cause, "Not observable")
    documented = KEY.findall(row(cause, "Thresholds"))
    assert {table for table, _, _ in documented} == set(cause.tables)
    for table, key, value in documented:
        assert float(value) == THRESHOLDS[table][key], f"{table}.{key}"


SENTENCE_ENDS = re.compile(r"[.!?](?=\s+[A-Z`0-9])")
"""A full stop and what begins a sentence after it: not that of `0.1 %`."""


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES.keys())
def test_a_rule_is_explained_in_five_sentences_at_most(cause: Cause) -> None:
    rule = row(cause, "Rule")
    sentences = SENTENCE_ENDS.split(rule)
    assert len(sentences) <= 5, sentences
    assert rule.count(";") <= 3, "sentences that are joined"


def test_the_docs_have_every_threshold_and_no_other_cause() -> None:
    documented = {(table, key) for table, key, _ in KEY.findall(PAGE)}
    assert documented == {(table, key) for table in THRESHOLDS for key in THRESHOLDS[table]}
    assert set(re.findall(r"^### .+ \(`(\w+)`\)$", PAGE, re.M)) == set(CAUSES)


def test_causes_are_declared_completely() -> None:
    assert len({cause.title for cause in CAUSES.values()}) == len(CAUSES)
    for cause in CAUSES.values():
        assert cause.severity in SEVERITIES
        assert cause.title[0].isupper()
        assert cause.advice
        assert all(table in THRESHOLDS for table in cause.tables)
    assert all(causes_with(trait) for trait in Trait), "a trait that no cause has"


def test_lost_bandwidth_is_said_where_it_is_measured() -> None:
    goldens = sorted((ROOT / "tests" / "scenario" / "goldens").glob("*.json"))
    findings = [each for golden in goldens for each in json.loads(golden.read_text("utf-8"))]
    said = 0
    for finding in findings:
        for each in finding["evidence"]:
            if each["name"] == "lost bandwidth":
                assert each["value"] == pytest.approx(100 * finding["lost"], abs=0.1)
                said += 1
        if finding["cause"] == "uneven_rails":
            assert finding["lost"] == 0
    assert said > 10


def test_what_a_degraded_link_lacks_is_not_called_lost_bandwidth() -> None:
    """A link of 100 instead of 400 Gb/s that carries 16 Gb/s has lost nothing yet."""
    collision = Condition(
        cause="ecmp_collision",
        severity="warning",
        subject="leaf1/up3",
        rows=(),
        text="",
        evidence=(),
        advice="",
        confidence=0.9,
        lost=0.75,
    )
    slow = msgspec.structs.replace(collision, cause="degraded_link")
    assert brief_loss(collision) == "75 % lost"
    assert brief_loss(slow) == "75 % slower"
    assert loss_and_confidence(collision) == "75 % of the bandwidth lost, confidence 90 %"
    assert loss_and_confidence(slow) == "75 % below its usual line rate, confidence 90 %"
    bound = msgspec.structs.replace(collision, lost_is_upper_bound=True)
    assert brief_loss(bound) == "up to 75 % lost"
    assert loss_and_confidence(bound) == "up to 75 % of the bandwidth lost, confidence 90 %"
    assert (lost_bandwidth(collision), lost_bandwidth(slow)) == (0.75, 0.0)
    unmeasured = msgspec.structs.replace(slow, lost=0.0)
    assert brief_loss(unmeasured) == ""
    assert loss_and_confidence(unmeasured) == "confidence 90 %"


def test_every_fault_of_the_demo_is_named_after_a_cause() -> None:
    assert set(KINDS) <= set(CAUSES)


def test_what_ports_wait_for_decides_the_title_of_a_cause_of_pause() -> None:
    assert title_at("pause_deadlock", "hashed", has_credits=False) == "Pause deadlock"
    assert title_at("pause_deadlock", "static", has_credits=True) == "Credit loop"
    assert title_at("slow_receiver", "static", has_credits=True) == "Slow receiver"


def test_a_cause_of_a_newer_version_is_titled_in_words() -> None:
    assert title("host_pcie_limit") == "Host PCIe limit"
    assert title("made_up_tomorrow") == "Made up tomorrow"


def test_the_program_has_the_rule_of_every_cause_in_words() -> None:
    """As packaged: an installed program and a page that was sent have no documentation."""
    assert set(RULES) == set(CAUSES)
    for rule in RULES.values():
        assert rule.rule
        assert rule.limits
        assert not set("`*[") & set(rule.rule + rule.limits)
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    included = shipped["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included["docs/findings.md"] == "fabmon/analysis/findings.md"
