"""`fabmon fluctuate` and `fabmon compare`, as they are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fabmon.analysis.fluctuation.compare import Comparison, Difference
from fabmon.cli.compare import compare
from fabmon.cli.errors import UsageError
from fabmon.cli.fluctuate import fluctuate
from fabmon.feeds.demo.feed import START_NS
from fabmon.report.comparison import comparison_table
from tests.goldens import check_golden
from tests.unit.fluctuation.playing import record, shared

GOLDENS = Path(__file__).parent / "goldens"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of ten minutes, the second 8 % slower."""
    home = tmp_path_factory.mktemp("runs")
    record(home / "before.fabrec", shared(1), 600)
    record(home / "after.fabrec", shared(2, 0.736), 600, START_NS + 3600 * 10**9)
    return home


def _said(command: object, *arguments: str) -> str:
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)  # type: ignore[arg-type]
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.parametrize("by", ["rail", "link", "pair", "job", "hour", "weekday"])
def test_fluctuate(recorded: Path, by: str) -> None:
    path = str(recorded / "before.fabrec")
    said = _said(
        fluctuate, path, "--by", by, "--mine", "gpu[001-002,005-006]", "--tz", "Europe/Berlin"
    )
    check_golden(GOLDENS / f"fluctuate-{by}.txt", said)


def test_compare(recorded: Path) -> None:
    said = _said(compare, str(recorded / "before.fabrec"), str(recorded / "after.fabrec"))
    check_golden(GOLDENS / "compare.txt", said)
    assert said.startswith("Yes, ")


def test_a_part_and_some_links_of_a_recording_as_json(recorded: Path) -> None:
    path = str(recorded / "before.fabrec")
    said = _said(fluctuate, path, "--from", "+5m", "--links", "leaf1/*", "--format", "json")
    found = json.loads(said)
    assert found["watched_s"] == pytest.approx(300, abs=3)
    assert {each["kind"] for each in found["subjects"]} == {"all", "pair", "link"}
    assert all(e["name"].startswith("leaf1/") for e in found["subjects"] if e["kind"] == "link")


def test_runs_of_a_directory_are_told_apart_by_the_time_between_them(recorded: Path) -> None:
    said = _said(compare, str(recorded), str(recorded / "bef*.fabrec"), "--format", "json")
    found = json.loads(said)
    assert found["a"] == ["before.fabrec", "after.fabrec"]
    assert found["b"] == ["before.fabrec"]


@pytest.mark.parametrize("zone", ["inf", "-inf", "nan", "1e300", "24", "+2:75", "../etc"])
def test_a_zone_without_end_is_a_mistake(recorded: Path, zone: str) -> None:
    with pytest.raises(UsageError, match="--tz"):
        _said(fluctuate, str(recorded / "before.fabrec"), "--links", "leaf1/*", "--tz", zone)


@pytest.mark.parametrize(
    ("zone", "label"),
    [
        ("Europe/Berlin", "HOUR (Europe/Berlin)"),
        ("+2", "HOUR (UTC+02:00)"),
        ("-3.5", "HOUR (UTC-03:30)"),
        ("+05:45", "HOUR (UTC+05:45)"),
        ("-05:45", "HOUR (UTC-05:45)"),
        ("UTC", "HOUR (UTC)"),
    ],
)
def test_hours_say_whose_they_are(recorded: Path, zone: str, label: str) -> None:
    path = str(recorded / "before.fabrec")
    said = _said(fluctuate, path, "--links", "gpu001", "--by", "hour", "--tz", zone)
    assert label in said


def test_what_is_sure_but_small_is_said_so() -> None:
    small = Difference(
        what="bandwidth", kind="all", name="all rails", before=200e9, after=199.4e9,
        change=-0.003, low=-0.004, high=-0.002, p=0.0001, batches=(90, 90), values=1,
    )  # fmt: skip
    found = Comparison(
        a=("a",), b=("b",), a_s=900, b_s=900, by_runs=False,
        headlines=(small,), links=(), unmatched=(), notes=(),
    )  # fmt: skip
    said = comparison_table(found).splitlines()[0]
    assert "0.3 % lower in B, sure but below 0.5 %" in said
    assert "noise" not in said


@pytest.mark.parametrize("command", ["fluctuate", "compare"])
def test_help(command: str) -> None:
    asked = {"fluctuate": fluctuate, "compare": compare}[command]
    check_golden(GOLDENS / f"{command}-help.txt", _said(asked, "--help"))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--tz", "Mars/Olympus"], "--tz Mars/Olympus: a zone such as"),
        (["--links", "nosuch*"], r"--links nosuch\*: no rail and no switch port"),
        (["--mine", "gpu[1-"], r"--mine gpu\[1-"),
        (["--from", "yesterday"], "--from yesterday: a time such as"),
    ],
)
def test_what_is_wrong_is_said(recorded: Path, arguments: list[str], complaint: str) -> None:
    path = str(recorded / "before.fabrec")
    with pytest.raises(UsageError, match=complaint):
        CliRunner().invoke(fluctuate, [path, *arguments], catch_exceptions=False)


def test_a_recording_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\*\.fabrec: there is no such recording"):
        CliRunner().invoke(compare, [str(tmp_path / "no*.fabrec"), "x"], catch_exceptions=False)
