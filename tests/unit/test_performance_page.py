"""The tables of docs/performance.md are those of the kept measurements, which are not too old."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bench.parts_table import Measured, parts_table
from tests.bench.table import BENCHES, PAGE, merged, page, results

_RELEASES = re.compile(r"^## (\d+\.\d+\.\d+)", re.MULTILINE)


def test_the_tables_are_made_from_the_measurements() -> None:
    assert PAGE.read_text() == page(PAGE.read_text())


@pytest.mark.parametrize("bench", BENCHES)
def test_the_measurements_are_of_this_release_or_the_one_before(bench: str) -> None:
    changelog = Path(__file__).parents[2] / "CHANGELOG.md"
    latest = _RELEASES.findall(changelog.read_text())[:2]
    assert {each["version"] for each in results(bench)} <= set(latest)


def _line(bench: str, **more: object) -> Measured:
    return {"bench": bench, "version": "0.1.0", **more}


def test_a_new_line_replaces_that_of_the_same_case_alone() -> None:
    old = [_line("heatmap", changing=0.2, ms=4), _line("heatmap", changing=1.0, ms=5)]
    new = [_line("heatmap", changing=0.2, ms=3), _line("console"), _line("shipped", nodes=256)]
    assert merged("parts", old, new) == [
        _line("console"),
        _line("heatmap", changing=0.2, ms=3),
        _line("heatmap", changing=1.0, ms=5),
    ]


def test_what_was_skipped_replaces_nothing() -> None:
    old = [_line("ssh", nodes=200)]
    assert merged("parts", old, [_line("ssh", skipped="no sshd")]) == old


def test_a_soak_replaces_all_of_the_last_one() -> None:
    old = [_line("soak", minutes=each) for each in (10, 20, 30)]
    assert merged("soak", old, [_line("soak", minutes=10, rss_mb=200)]) == [
        _line("soak", minutes=10, rss_mb=200)
    ]


def test_a_row_that_was_not_measured_is_not_in_the_table() -> None:
    about = {"date": "2026-11-23", "commit": "0", "machine": "2 cores", "load_before": 0.1}
    rows = parts_table([_line("demo", cores_at_1hz=0.03, **about)])
    assert "| 0.03 of a core |" in rows
    assert "node_exporter" not in rows
    assert "2026-11-23, commit 0, 2 cores, load 0.1 to 0.1." in rows
