"""The tables of docs/performance.md are those of the kept measurements, which are not too old."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bench.table import BENCHES, PAGE, page, results

_RELEASES = re.compile(r"^## (\d+\.\d+\.\d+)", re.MULTILINE)


def test_the_tables_are_made_from_the_measurements() -> None:
    assert PAGE.read_text() == page(PAGE.read_text())


@pytest.mark.parametrize("bench", BENCHES)
def test_the_measurements_are_of_this_release_or_the_one_before(bench: str) -> None:
    changelog = Path(__file__).parents[2] / "CHANGELOG.md"
    latest = _RELEASES.findall(changelog.read_text())[:2]
    assert {each["version"] for each in results(bench)} <= set(latest)
