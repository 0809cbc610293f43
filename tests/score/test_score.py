"""The score on a few seconds of a few fabrics: that it plays, judges and prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.score import __main__ as command
from tests.score.detector_sets import MODEL, RULES
from tests.score.play import play
from tests.score.table import numbers, report
from tests.world.plans import Plan, draw_plan


def test_a_short_score() -> None:
    plans = [draw_plan(3, "healthy", "ring"), draw_plan(3, "fault", "ring", "slow_receiver")]
    runs = [command.one(replace(each, seconds=70), (RULES, MODEL)) for each in plans]
    scores = {name: [run[name] for run in runs] for name in (RULES, MODEL)}
    for name in (RULES, MODEL):
        healthy, fault = scores[name]
        assert healthy.healthy
        assert [truth.cause for truth in fault.played.truths if not truth.natural] == [
            "slow_receiver"
        ]
    text = report(scores)
    assert "| slow_receiver | rules |" in text
    assert "| ring | model | 2 |" in text
    assert set(json.loads(json.dumps(numbers(scores)))) == {RULES, MODEL}


def test_the_rules_report_beside_the_model_what_they_report_alone() -> None:
    plan = replace(draw_plan(6, "fault", "ring", "ecmp_collision"), seconds=75)
    both = play(plan)
    alone = play(plan, [RULES])
    assert set(both) == {RULES, MODEL}
    assert both[RULES].reported
    assert both[RULES] == alone[RULES]


def test_kept_scores_are_those_of_the_same_plan_and_detectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[tuple[str, ...]] = []

    def one(plan: Plan, names: Sequence[str]) -> dict[str, tuple[Plan, str]]:
        played.append(tuple(names))
        return {name: (plan, name) for name in names}

    monkeypatch.setattr(command, "one", one)
    any_fault = draw_plan(3, "fault", "ring")
    only_one = draw_plan(3, "fault", "ring", "slow_receiver")
    assert any_fault.fault != only_one.fault

    def kept(plan: Plan, *names: str) -> object:
        return command.kept(tmp_path, plan, names)

    assert kept(any_fault, RULES) == {RULES: (any_fault, RULES)}
    assert kept(only_one, RULES) == {RULES: (only_one, RULES)}
    both = {RULES: (any_fault, RULES), MODEL: (any_fault, MODEL)}
    assert kept(any_fault, RULES, MODEL) == both
    assert kept(any_fault, RULES, MODEL) == both
    assert played == [(RULES,), (RULES,), (MODEL,)]


def test_the_command_lists_the_detectors_of_each_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def short(word: str, only: str | None) -> Plan:
        return replace(draw_plan(3, "fault", "ring", "slow_receiver"), seconds=70)

    monkeypatch.setattr(command, "_plan", short)
    monkeypatch.setattr("fabmon.analysis.detectors.slow_receiver.slow_receivers", no_findings)
    words = "--healthy 0 --faults 1 --workers 1 --judged-by rules --list --out"
    monkeypatch.setattr(sys, "argv", ["score", *words.split(), str(tmp_path / "score.md")])
    command.main()
    printed = capsys.readouterr().out
    assert "MISSED rules     3 " in printed
    assert "| all | rules | 1 |" in printed
    assert "| model |" not in printed
    page = (tmp_path / "score.md").read_text()
    assert page.startswith("# How good the findings are")


def no_findings(*_: object, **__: object) -> tuple[()]:
    """A detector that finds nothing."""
    return ()
