"""The score on a few seconds of a few fabrics: that it plays, judges and prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fabmon.analysis.causes import Thresholds
from fabmon.analysis.evidence.detector_input import Detector
from tests.score import __main__ as command
from tests.score.detector_sets import IN_USE
from tests.score.play import play
from tests.score.table import numbers, report
from tests.world.plans import Plan, draw_plan

OTHER = "tests.score.test_score:no_detectors"


def test_a_short_score() -> None:
    plans = [draw_plan(3, "healthy", "ring"), draw_plan(3, "fault", "ring", "slow_receiver")]
    runs = [command.one(replace(each, seconds=70), (IN_USE, OTHER)) for each in plans]
    scores = {name: [run[name] for run in runs] for name in (IN_USE, OTHER)}
    for name in (IN_USE, OTHER):
        healthy, fault = scores[name]
        assert healthy.healthy
        assert [truth.cause for truth in fault.played.truths if not truth.natural] == [
            "slow_receiver"
        ]
    text = report(scores)
    assert "| slow_receiver | fabmon |" in text
    assert f"| ring | {OTHER} | 2 |" in text
    assert set(json.loads(json.dumps(numbers(scores)))) == {IN_USE, OTHER}


def test_a_set_reports_beside_another_what_it_reports_alone() -> None:
    plan = replace(draw_plan(6, "fault", "ring", "ecmp_collision"), seconds=75)
    both, alone = play(plan, [IN_USE, OTHER]), play(plan)
    assert both[IN_USE].reported
    assert both[IN_USE] == alone[IN_USE]
    assert both[OTHER].reported == []


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

    assert kept(any_fault, IN_USE) == {IN_USE: (any_fault, IN_USE)}
    assert kept(only_one, IN_USE) == {IN_USE: (only_one, IN_USE)}
    both = {IN_USE: (any_fault, IN_USE), OTHER: (any_fault, OTHER)}
    assert kept(any_fault, IN_USE, OTHER) == both
    assert kept(any_fault, IN_USE, OTHER) == both
    assert played == [(IN_USE,), (IN_USE,), (OTHER,)]


def test_the_command_lists_the_detectors_of_each_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def short(word: str, only: str | None) -> Plan:
        return replace(draw_plan(3, "fault", "ring", "slow_receiver"), seconds=70)

    monkeypatch.setattr(command, "_plan", short)
    monkeypatch.setattr("fabmon.analysis.detectors.slow_receiver.slow_receivers", no_findings)
    words = f"--healthy 0 --faults 1 --workers 1 --judged-by {OTHER} --list --out"
    monkeypatch.setattr(sys, "argv", ["score", *words.split(), str(tmp_path / "score.md")])
    command.main()
    printed = capsys.readouterr().out
    assert "MISSED fabmon     3 " in printed
    assert f"MISSED {OTHER}     3 " in printed
    assert "| all | fabmon | 1 |" in printed
    page = (tmp_path / "score.md").read_text()
    assert page.startswith("# How good the findings are")


def test_detectors_that_do_not_exist_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["score", "--judged-by", "tests.score:nothing"])
    with pytest.raises(SystemExit, match=r"--judged-by tests.score:nothing: .* MODULE:FUNCTION"):
        command.main()


def no_detectors(thresholds: Thresholds) -> list[Detector]:
    """What OTHER names."""
    return []


def no_findings(*_: object, **__: object) -> tuple[()]:
    """A detector that finds nothing."""
    return ()
