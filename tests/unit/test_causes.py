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
    SECTIONS,
    brief_loss,
    causes_with,
    loss_and_confidence,
    lost_bandwidth,
    title,
    title_at,
)
from fabmon.analysis.finding import SEVERITIES, Cause, Finding, Trait
from fabmon.fabric.wording import rounded_percent
from fabmon.feeds.demo.faults import KINDS
from tests.goldens import check_golden

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "findings.md"
TOML = (ROOT / "config" / "thresholds.toml").read_text(encoding="utf-8")
THRESHOLDS = tomllib.loads(TOML)
NAME = re.compile(r"\b[a-z]\w*(?:[._]\w+)+")
"""A threshold, counter or cause in plain text: `model.shared`, `ib_tx_wait`."""
SENTENCE_ENDS = re.compile(r"[.!?](?=\s+[A-Z0-9])")
"""A full stop and what begins a sentence after it: not that of `0.1 %`."""


def test_the_page_about_findings_is_made_from_the_declarations() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, made in (("causes", _causes()), ("thresholds", _thresholds())):
        begin, end = (f"<!-- {name}: {mark} -->\n" for mark in ("begin", "end"))
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        assert found, f"no {begin} and {end}"
        page = f"{before}{begin}\n{made}\n{end}{after}"
    check_golden(PAGE, page)


def _causes() -> str:
    """The sections of all causes, as Markdown."""
    lines = []
    for section, causes in SECTIONS.items():
        lines += [f"## {section}", ""]
        for cause in causes:
            lines += [f"### {cause.title} (`{cause.name}`)", "", _sentence(cause), ""]
            lines += [f"- **{name}:** {text}" for name, text in _rows(cause)]
            lines.append("")
    return "\n".join(lines)


def _sentence(cause: Cause) -> str:
    severity = "; ".join(filter(None, (cause.severity, cause.other_severity)))
    severity = NAME.sub(r"`\g<0>`", severity)
    sure = f" *Confidence:* {rounded_percent(cause.confidence)}." if cause.confidence < 1 else ""
    return f"{cause.meaning[0].upper()}{cause.meaning[1:]}. *Severity:* {severity}.{sure}"


def _rows(cause: Cause) -> list[tuple[str, str]]:
    other = f"{cause.other_title.title}, {cause.other_title.where}" if cause.other_title else ""
    tables = ", ".join(f"[{table}](#thresholds)" for table in cause.tables)
    plain = {
        "Rule": cause.rule,
        "Inputs": cause.inputs,
        "Not observable": cause.not_observable,
        "Advice": cause.advice,
    }
    rows = [(name, NAME.sub(r"`\g<0>`", text)) for name, text in plain.items()]
    rows += [("Thresholds", tables), ("Title elsewhere", other)]
    return [(name, text) for name, text in rows if text]


def _thresholds() -> str:
    """A table of every threshold with the comment that config/thresholds.toml has beside it."""
    lines = ["| Threshold | Default | Meaning |", "|---|---|---|"]
    table, known = "", set()
    for line in TOML.splitlines():
        if found := re.fullmatch(r"\[(\w+)\](?: +# (.+))?", line):
            table = found[1]
        elif found := re.fullmatch(r"(\w+) = (\S+) +# (.+)", line):
            lines.append(f"| `{table}.{found[1]}` | {found[2]} | {found[3]} |")
            known.add((table, found[1]))
    assert known == {(table, key) for table in THRESHOLDS for key in THRESHOLDS[table]}
    return "\n".join([*lines, ""])


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES.keys())
def test_rules_are_short_plain_and_name_thresholds_of_their_tables(cause: Cause) -> None:
    assert len(SENTENCE_ENDS.split(cause.rule)) <= 5
    assert cause.rule.count(";") <= 3, "sentences that are joined"
    text = f"{cause.rule} {cause.inputs} {cause.not_observable} {cause.advice}"
    assert not set("`*[]|<>") & set(text)
    for name in NAME.findall(cause.rule):
        table, dot, key = name.partition(".")
        assert not dot or (table in cause.tables and key in THRESHOLDS[table]), name


def test_the_page_about_the_model_names_numbers_that_there_are() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## The bottleneck model")[2]
    named = set(re.findall(r"`\W?([a-z]+(?:_[a-z]+)*)`", section.partition("\n## ")[0]))
    assert named - THRESHOLDS["model"].keys() == {"model"}
    assert len(named) > 15


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
    collision = Finding(
        since_ns=0,
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
