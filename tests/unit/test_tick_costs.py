"""What the parts of a tick cost, as `fabmon --perf` says at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabmon.cli.main import cli
from fabmon.scenes.tick_costs import Part, TickCosts


def test_a_part_takes_what_passed_since_the_one_before() -> None:
    now_s = 5.0
    costs = TickCosts(lambda: now_s)
    assert costs.text() == ""
    for reading_s, history_s in ((0.05, 0.01), (0.07, 0.02), (0.06, 0.01)):
        now_s += reading_s
        costs.end(Part.READING)
        now_s += history_s
        costs.end(Part.HISTORY)
    assert costs.text() == (
        "CPU of a tick, median and most: frames, keys, terminal 60.0, 70.0 ms;"
        " history 10.0, 20.0 ms"
    )


def test_a_run_says_at_its_end_what_its_ticks_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli(["--once", "--perf", "--record", str(tmp_path / "a.fabrec")], standalone_mode=False)
    said = capsys.readouterr().err
    for part in (*Part, "recording"):
        assert f"{part} " in said
    assert said.count("CPU of a tick") == 1
