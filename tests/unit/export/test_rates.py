"""export as CSV, Parquet and JSON lines gives the same numbers as other outputs."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from fabmon.fabric.model import Host
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.writing.writer import Writer
from fabmon.report.rates import COLUMNS
from tests.builders import START_NS, frame, hello, port, tick, up
from tests.unit.recording.builders import eventful_ticks, quiet_ticks, write
from tests.unit.test_cli import fabmon_here

SHORT = ("--from", "+20s", "--to", "+24s")


def exported(recording: Path, to: Path, *options: str) -> Path:
    done = fabmon_here("export", str(recording), "-o", str(to), "--format", to.suffix[1:], *options)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"fabmon: wrote {to}: [\d.]+ [kM]?B, .+Z to .+Z \(.+\)\n", done.stderr)
    return to


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_csv_has_the_numbers_of_the_lines(pod7: Path, tmp_path: Path) -> None:
    rows = rows_of(exported(pod7, tmp_path / "a.csv", *SHORT))
    lines = lines_of(exported(pod7, tmp_path / "a.jsonl", *SHORT))
    ticks = [line for line in lines if line["type"] == "tick"]
    links = [(tick["time"], link) for tick in ticks for link in tick["links"]]
    assert len(ticks) == 5
    assert len(rows) == len(links) > 1000
    assert tuple(rows[0]) == COLUMNS
    for row, (time, link) in zip(rows, links, strict=True):
        assert (row["time"], row["node"], row["port"]) == (time, link["node"], link["port"])
        assert (row["peer"] or None, row["state"]) == (link["peer"], link["state"])
        for column, name in (
            ("line_rate_bps", "speed_bps"),
            ("tx_bps", "tx_bps"),
            ("rx_util_ratio", "rx_util"),
        ):
            assert (float(row[column]) if row[column] else None) == link[name]
    # NVLinks are on no rail.
    assert {row["rail"] for row in rows if row["node"] == "gpu001"} == {"", *"01234567"}
    assert {row["rail"] for row in rows if row["node"] == "leaf1"} == {""}


def test_parquet_has_the_numbers_of_csv(pod7: Path, tmp_path: Path) -> None:
    rows = rows_of(exported(pod7, tmp_path / "a.csv", *SHORT))
    table = pq.read_table(exported(pod7, tmp_path / "a.parquet", *SHORT))
    assert tuple(table.column_names) == COLUMNS
    assert table.num_rows == len(rows)
    for name in ("node", "port", "role", "peer", "state", "doubt"):
        assert table[name].to_pylist() == [row[name] or None for row in rows]
    for name in ("tx_bps", "pause_rx_ratio", "stall_ratio", "ecn_packets_per_s"):
        expected = np.array([row[name] or "nan" for row in rows], np.float32)
        np.testing.assert_allclose(table[name].to_numpy(), expected, rtol=1e-5)
    times = [each.isoformat().replace("+00:00", "Z") for each in table["time"].to_pylist()]
    assert times == [row["time"] for row in rows]
    assert table["stall_ratio"].null_count == table.num_rows


def test_every_column_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "export.md").read_text("utf-8")
    assert [each for each in COLUMNS if f"`{each}`" not in page] == []


def test_what_is_absent_is_empty_and_null(tmp_path: Path) -> None:
    write(tmp_path / "a.fabrec", eventful_ticks())
    rows = rows_of(exported(tmp_path / "a.fabrec", tmp_path / "b.csv"))
    ours = [row for row in rows if row["node"] == "gpu002"]
    assert ours[8]["tx_bps"] == ""  # gpu002 sent null at tick 8, and has nothing to count from
    assert ours[9]["tx_bps"] == ""
    assert ours[7]["tx_bps"] == "0.0"
    table = pq.read_table(exported(tmp_path / "a.fabrec", tmp_path / "b.parquet"))
    values = table["tx_bps"].to_pylist()
    assert [value is None for value in values] == [row["tx_bps"] == "" for row in rows]


def test_names_are_not_formulas_in_csv(tmp_path: Path) -> None:
    names = ["=cmd|calc", "@SUM(1)", "+1", "-1", "eth0", "a;=1+1", 'b;"=1+1"', "eth-1;2"]
    host = Host(name="gpu001")
    record = SessionRecord(started_ns=START_NS, interval_s=1.0, hosts=(host,))
    writer = Writer.create(tmp_path / "a.fabrec", record)
    hellos = {host.name: hello(*(port(name, name) for name in names))}
    writer.write(tick(0, {host.name: frame(0, *[1, 0, 0, 0] * len(names))}, hellos, up(host.name)))
    writer.close()
    rows = rows_of(exported(tmp_path / "a.fabrec", tmp_path / "b.csv"))
    assert {row["port"] for row in rows} == {
        *("'=cmd|calc", "'@SUM(1)", "'+1", "'-1", "eth0"),
        *("a;'=1+1", 'b;"\'=1+1"', "eth-1;2"),
    }
    assert not any(cell[:1] in ("=", "+", "-", "@") for row in rows for cell in row.values())


def test_lines_are_those_of_a_replay(pod7: Path, tmp_path: Path) -> None:
    part = ("--to", "+24s")
    replay = fabmon_here("replay", str(pod7), "--speed", "max", "--format", "jsonl", *part)
    assert exported(pod7, tmp_path / "a.jsonl", *part).read_text() == replay.stdout
    piped = fabmon_here("export", str(pod7), "--format", "jsonl", "-o", "-", *part)
    assert (piped.stdout, piped.stderr) == (replay.stdout, "")
    assert '"type":"finding"' in replay.stdout


def test_links_are_selected_by_filters_of_the_screen(pod7: Path, tmp_path: Path) -> None:
    chosen = ("--links", "rail:3 node:gpu00", "--links", "util>95")
    rows = rows_of(exported(pod7, tmp_path / "a.csv", *SHORT, *chosen))
    assert rows
    for row in rows:
        busy = max(float(row["tx_util_ratio"]), float(row["rx_util_ratio"])) > 0.95
        assert busy or (row["rail"] == "3" and row["node"].startswith("gpu00"))
    lines = lines_of(exported(pod7, tmp_path / "a.jsonl", *SHORT, *chosen))
    links = [link for line in lines if line["type"] == "tick" for link in line["links"]]
    assert [(row["node"], row["port"]) for row in rows] == [(x["node"], x["port"]) for x in links]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("FILE", "--format", "parquet"), 2, "--format parquet: name a file with -o"),
        (("FILE", "--format", "parquet", "-o", "-"), 2, "--format parquet: name a file with -o"),
        (("FILE", "--format", "csv", "-o", "FILE"), 2, "this file exists already"),
        (("FILE", "--format", "csv", "--links", "speed>1"), 2, "--links speed: compare one of"),
        (
            ("FILE", "--format", "openmetrics", "--links", "util>80"),
            2,
            "--links util>80: openmetrics exports whole series: choose links by role:, group:",
        ),
        (
            ("FILE", "--format", "csv", "--from", "noon"),
            2,
            "--from noon: write a time",
        ),
        (("--format", "csv"), 2, "name a recording"),
        (("FILE", "--format", "csv", "-o", "/proc/none/a.csv"), 2, "/proc/none: no such directory"),
    ],
)
def test_mistakes_are_explained(
    tmp_path: Path, arguments: tuple[str, ...], status: int, message: str
) -> None:
    write(tmp_path / "a.fabrec", quiet_ticks(30))
    path = str(tmp_path / "a.fabrec")
    done = fabmon_here("export", *(path if each == "FILE" else each for each in arguments))
    assert done.returncode == status, done.stderr
    assert message in done.stderr


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.fabrec", quiet_ticks(30))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    out = tmp_path / "a.parquet"
    done = fabmon_here("export", str(tmp_path / "a.fabrec"), "--format", "parquet", "-o", str(out))
    assert done.returncode == 2
    assert "extra fabmon[parquet]" in done.stderr
    assert not out.exists()


def test_a_full_disk_is_reported(pod7: Path) -> None:
    program = Path(sys.executable).with_name("fabmon")
    with Path("/dev/full").open("wb") as file:
        done = subprocess.run(
            [program, "export", str(pod7), "--format", "csv"],
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
        )
    assert done.returncode == 1
    assert done.stderr == "fabmon: standard output: No space left on device\n"


def test_a_replay_prints_the_ticks_that_an_export_of_the_same_time_does(pod7: Path) -> None:
    """That before the first one, which holds the state at the start, is in neither."""
    part = ("--from", "+20s", "--to", "+22s")
    printed = {
        command: fabmon_here(command, str(pod7), "--format", "jsonl", *part).stdout
        for command in ("replay", "export")
    }
    assert printed["replay"] == printed["export"]
    times = {json.loads(each)["time"] for each in printed["export"].splitlines()}
    assert len(times) == 3
