"""The output of `fabmon fluctuate` and `fabmon compare`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from fabmon.analysis.fluctuation.comparison import Comparison, Difference
from fabmon.analysis.fluctuation.study import Study
from fabmon.cli.compare import compare
from fabmon.cli.fluctuate import fluctuate
from fabmon.feeds.demo.feed import START_NS
from fabmon.report.comparison import comparison_table
from fabmon.report.fluctuation import fluctuation_table
from fabmon.session.errors import UsageError
from tests.goldens import check_golden
from tests.unit.fluctuation.recorded_runs import record, shared
from tests.unit.test_cli import fabmon

GOLDENS = Path(__file__).parent / "goldens"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of ten minutes, the second 8 % slower."""
    home = tmp_path_factory.mktemp("runs")
    record(home / "before.fabrec", shared(1), 600)
    record(home / "after.fabrec", shared(2, 0.736), 600, START_NS + 3600 * 10**9)
    return home


def _run(command: object, *arguments: str) -> str:
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)  # type: ignore[arg-type]
    assert done.exit_code == 0
    return done.stdout


@pytest.mark.parametrize(
    "by", ["rail", "link", "pair", "job", "user", "partition", "hour", "weekday"]
)
def test_fluctuate(recorded: Path, by: str) -> None:
    path = str(recorded / "before.fabrec")
    printed = _run(
        fluctuate, path, "--by", by, "--mine", "gpu[001-002,005-006]", "--tz", "Europe/Berlin"
    )
    check_golden(GOLDENS / f"fluctuate-{by}.txt", printed)


def test_a_job_is_the_same_in_a_recording_that_begins_an_hour_later(recorded: Path) -> None:
    printed = _run(fluctuate, str(recorded), "--by", "job", "--format", "json")
    jobs = [each for each in json.loads(printed)["subjects"] if each["kind"] == "job"]
    assert [each["job"]["id"] for each in jobs] == ["8801", "8802"]
    known = [hour["slot"] for hour in jobs[0]["hours"]]
    assert len(known) == 2, "hours of both recordings"


def test_compare(recorded: Path) -> None:
    printed = _run(compare, str(recorded / "before.fabrec"), str(recorded / "after.fabrec"))
    check_golden(GOLDENS / "compare.txt", printed)
    assert printed.startswith("Yes, ")


def test_a_recording_does_not_differ_from_itself_or_its_copy(
    recorded: Path, tmp_path: Path
) -> None:
    path, copy = str(recorded / "before.fabrec"), tmp_path / "copy.fabrec"
    shutil.copy(path, copy)
    for other in (path, str(copy)):
        answer, *lines = _run(compare, path, other).splitlines()
        assert answer == "No: A and B are the same measurements; nothing differs."
        rows = [line for line in lines if line.startswith(("job ", "step time", "leaf", "gpu"))]
        assert rows
        assert all("0 %  +0.0 to +0.0" in row for row in rows)
        assert not any("noise" in line for line in lines)


def test_a_part_and_some_links_of_a_recording_as_json(recorded: Path) -> None:
    path = str(recorded / "before.fabrec")
    printed = _run(fluctuate, path, "--from", "+5m", "--links", "leaf1/*", "--format", "json")
    found = json.loads(printed)
    assert found["watched_s"] == pytest.approx(300, abs=3)
    assert {each["kind"] for each in found["subjects"]} == {"all", "pair", "link"}
    assert all(e["name"].startswith("leaf1/") for e in found["subjects"] if e["kind"] == "link")


def test_runs_of_a_directory_are_divided_by_the_time_between_them(recorded: Path) -> None:
    printed = _run(compare, str(recorded), str(recorded / "bef*.fabrec"), "--format", "json")
    found = json.loads(printed)
    assert found["a"] == ["before.fabrec", "after.fabrec"]
    assert found["b"] == ["before.fabrec"]


@pytest.mark.parametrize("zone", ["inf", "-inf", "nan", "1e300", "24", "+2:75", "../etc"])
def test_a_zone_without_end_is_a_mistake(recorded: Path, zone: str) -> None:
    with pytest.raises(UsageError, match="--tz"):
        _run(fluctuate, str(recorded / "before.fabrec"), "--links", "leaf1/*", "--tz", zone)


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
    printed = _run(fluctuate, path, "--links", "gpu001", "--by", "hour", "--tz", zone)
    assert label in printed


def _compared(*headlines: Difference) -> list[str]:
    """What is printed of some differences, line by line."""
    found = Comparison(
        a=("a",), b=("b",), a_s=900, b_s=900, by_runs=False,
        headlines=headlines, links=(), unmatched=(), notes=(),
    )  # fmt: skip
    return comparison_table(found).splitlines()


def _difference(change: float, reach: float, p: float, *, real: bool = False) -> Difference:
    """Of the bandwidth of all rails."""
    return Difference(
        what="bandwidth", kind="all", name="all rails", before=200e9, after=200e9 * (1 + change),
        change=change, low=change - reach, high=change + reach, p=p, real=real, batches=(90, 90),
        values=1,
    )  # fmt: skip


def test_the_answer_to_whether_eight_percent_are_real() -> None:
    answer, sentence, *_ = _compared(_difference(-0.08, 0.03, 0.0001, real=True))
    assert answer == "Yes, the difference is real: the bandwidth of all rails is 8.0 % lower in B."
    assert sentence == (
        "  Real: the bandwidth of all rails is 8.0 % lower in B: 200 Gb/s in A, 184 Gb/s in B "
        "(95 % confidence: -11.0 to -5.0 %, p < 0.001)."
    )
    answer, sentence, *_ = _compared(_difference(-0.08, 0.1, 0.13))
    assert answer == (
        "No: the difference is within the noise; a difference of more than 18 % is ruled out."
    )
    ruled_out = "a difference of more than 18 % is ruled out."
    assert sentence.endswith(f"(95 % confidence: -18.0 to +2.0 %, p = 0.13); {ruled_out}")
    answer, sentence, *_ = _compared(_difference(-0.08, 1.4, 0.9))
    hidden = "with so much noise no difference can be ruled out."
    assert answer == f"No: the difference is within the noise; {hidden}"
    assert sentence.endswith(f"(95 % confidence: -148.0 to +132.0 %, p = 0.9); {hidden}")
    other = _difference(0.08, 0.075, 0.04)
    answer, _, sentence, *_ = _compared(_difference(0.0, 0.02, 0.9), other)
    assert answer.startswith("No: the difference is within the noise; ")
    assert sentence.startswith("  Perhaps: the bandwidth of all rails is 8.0 % higher in B: ")
    short = Difference(
        what="bandwidth", kind="all", name="all rails", before=200e9, after=184e9,
        untested="5 and 90 values",
    )  # fmt: skip
    answer, sentence, *_ = _compared(short)
    assert answer == "Not known: the recordings are too short."
    assert sentence.endswith("200 Gb/s in A, 184 Gb/s in B; 5 and 90 values.")


def test_a_certain_but_small_change_is_reported_as_too_small() -> None:
    answer, sentence, *_ = _compared(_difference(-0.003, 0.001, 0.0001))
    assert answer.startswith("No: the difference is within the noise, or less than 0.50 %; ")
    assert sentence.startswith("  Too small: the bandwidth of all rails is 0.30 % lower in B: ")
    assert "noise" not in sentence


@pytest.mark.parametrize("command", ["fluctuate", "compare"])
def test_help(command: str) -> None:
    check_golden(GOLDENS / f"{command}-help.txt", fabmon(command, "--help").stdout)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--tz", "Mars/Olympus"], "--tz Mars/Olympus: write a zone such as"),
        (["--links", "nosuch*"], r"--links nosuch\*: no rail and no switch port"),
        (
            ["--links", "gpu*", "--links", "gup2"],
            r"--links gup2: no rail .*: did you mean .*gpu002",
        ),
        (["--mine", "gup001"], "--mine gup001: no host has such a name: did you mean gpu001"),
        (["--mine", "gpu[1-"], r"--mine gpu\[1-"),
        (["--mine", "@all"], "groups such as @compute are not supported"),
        (["--mine", "gpu[1-999999999]"], "a set of more than 65536 nodes"),
        (["--from", "yesterday"], "--from yesterday: write a time such as"),
    ],
)
def test_what_is_wrong_is_said(recorded: Path, arguments: list[str], complaint: str) -> None:
    path = str(recorded / "before.fabrec")
    with pytest.raises(UsageError, match=complaint):
        CliRunner().invoke(fluctuate, [path, *arguments], catch_exceptions=False)


def test_a_comparison_offers_links_with_a_similar_name_too(recorded: Path) -> None:
    path = str(recorded / "before.fabrec")
    with pytest.raises(UsageError, match=r"--links gup2: no rail .*: did you mean .*gpu002"):
        CliRunner().invoke(compare, [path, path, "--links", "gup2"], catch_exceptions=False)


def test_hosts_of_mine_that_are_not_recorded_are_said(recorded: Path) -> None:
    path = str(recorded / "before.fabrec")
    done = CliRunner().invoke(fluctuate, [path, "--mine", "gpu[001,777]"], catch_exceptions=False)
    assert not done.exit_code
    assert "--mine: not in the recording: gpu777" in done.stderr


def test_a_recording_of_no_counters_has_no_time_in_1970() -> None:
    printed = fluctuation_table(Study().result(), "rail")
    assert printed == "No counter of a node is recorded in this time: nothing was measured."


def test_a_recording_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no\*\.fabrec: no such file"):
        CliRunner().invoke(compare, [str(tmp_path / "no*.fabrec"), "x"], catch_exceptions=False)
