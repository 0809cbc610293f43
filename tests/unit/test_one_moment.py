"""One link at one moment has one value: on the screen, printed, exported, asked."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from fabmon.analysis.recent_load import full_port_ticks
from fabmon.fabric.time_wording import date_time, time_of_day, utc
from fabmon.fabric.wording import Unit, percent, rate
from fabmon.tui.text.labels import port_state
from tests.tui.recordings import Watching, replaying
from tests.unit.test_cli import fabmon, fabmon_here

LINE_RATE_BPS = 400e9
FULL_S = 40
"""A second of the collision on leaf1 up3."""


def printed(*arguments: str) -> str:
    run = fabmon_here(*arguments)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_a_time_that_one_output_prints_is_the_same_tick_for_all_others(
    tmp_path: Path,
) -> None:
    path = tmp_path / "collision.fabrec"
    scene = Watching().record(path, FULL_S + 20)[FULL_S]
    snapshot = scene.snapshot
    (port,) = (
        port for port in snapshot.fabric.ports if (port.node, port.label) == ("leaf1", "up3")
    )
    tx_bps = pytest.approx(float(snapshot.heat[0, port.row]), rel=1e-5)
    share = float(snapshot.tx_util[port.row])
    exact = utc(snapshot.time_ns).isoformat().replace("+00:00", "Z")
    second = time_of_day(snapshot.time_ns)

    for time in (exact, second):
        span = (str(path), "--from", time, "--to", time, "--format")
        once = printed("replay", str(path), "--once", "--at", time, "--format", "json")
        answer = json.loads(printed("query", "links", str(path), "--at", time, "--links", port.id))
        (row,) = (
            row
            for row in csv.DictReader(io.StringIO(printed("export", *span, "csv")))
            if (row["node"], row["port"]) == (port.node, port.name)
        )
        ticks = [json.loads(once)["tick"]]
        ticks += [
            record
            for record in map(json.loads, printed("export", *span, "jsonl").splitlines())
            if record["type"] == "tick"
        ]
        assert [answer["at"], row["time"], *(tick["time"] for tick in ticks)] == [exact] * 4
        links = [
            *answer["links"],
            *(
                link
                for tick in ticks
                for link in tick["links"]
                if (link["node"], link["port"]) == (port.node, port.name)
            ),
        ]
        assert [link["tx_bps"] for link in links] == [tx_bps] * 3
        assert {link["state"] for link in links} == {row["state"], port_state(scene, port.row)}
        assert float(row["tx_bps"]) == tx_bps
        assert float(row["tx_util_ratio"]) == pytest.approx(share, rel=1e-5)


async def test_all_views_show_one_value_of_a_link_over_the_window_of_the_header(
    tmp_path: Path,
) -> None:
    """Over each window it is what the exported ticks say."""
    path = tmp_path / "collision.fabrec"
    scene = Watching().record(path, FULL_S + 20)[FULL_S]
    second = time_of_day(scene.snapshot.time_ns)
    exported = fabmon("export", str(path), "--to", second, "--format", "csv").stdout
    sent = [
        float(row["tx_util_ratio"] or "nan")
        for row in csv.DictReader(io.StringIO(exported))
        if (row["node"], row["label"]) == ("leaf1", "up3")
    ]
    async with replaying(path, from_s=FULL_S, speed=0.1) as run:
        await run.press("space", "t", *second, "enter")
        await run.until(lambda: second in run.header and "reading" not in run.header)
        shown = run.app.screen_state.scene
        assert shown is not None
        over = {
            "max of 10 s": max(sent[-10:]),
            "mean of 10 s": statistics.fmean(sent[-10:]),
            "mean of 60 s": statistics.fmean(each for each in sent if not math.isnan(each)),
            f"mean of {shown.step_s:.0f} s, a step": statistics.fmean(
                sent[-math.ceil(shown.step_s) :]
            ),
            "this tick": sent[-1],
        }
        for window, share in over.items():
            await run.heads(f"p {window}")
            bps = rate(share * LINE_RATE_BPS, LINE_RATE_BPS, Unit.GBIT)
            await run.press("colon", *"leaf1 up3", "enter")
            assert f"tx {bps:>9} {percent(share):>6}" in run.text, f"port, {window}"
            await run.press("escape", "4", "escape")
            line = next(line for line in run.lines if "leaf1 up3 → spine3" in line and "tx" in line)
            assert f"tx {bps:>9} {percent(share):>6}" in line, f"status line, {window}"
            await run.press("2")
            numbers = next(line for line in run.lines if line.lstrip().startswith("Gb/s")).split()
            assert numbers[3] == bps.split()[0], f"switches, {window}"
            await run.press("5")
            row = next(line for line in run.lines if line.lstrip().startswith("leaf1"))
            assert f"{100 * share:.0f}" in row, f"matrix, {window}"
            await run.press("1", "slash", *f"util>{100 * share - 0.5:.2f}", "enter")
            state = run.app.screen_state
            assert state.scene is not None
            matched = state.matched(state.scene)
            port = next(
                p for p in state.scene.snapshot.fabric.ports if p.display_name == "leaf1 up3"
            )
            assert matched is not None
            assert matched.ports[port.row], f"filter, {window}"
            await run.press("escape", "p")


def test_a_finding_of_a_cut_begins_when_it_was_recorded_to_whoever_is_asked(
    tmp_path: Path,
) -> None:
    """Few minutes before it, or none, are no reason for another begin: computed again, it opens two
    seconds earlier here, or seven later."""
    whole, made = tmp_path / "whole.fabrec", tmp_path / "cut.fabrec"
    scenes = Watching().record(whole, FULL_S + 30)
    (since_ns,) = {found.since_ns for scene in scenes for _, found in scene.changes}
    exact, began = utc(since_ns).isoformat().replace("+00:00", "Z"), time_of_day(since_ns)
    for begin_s in (-3, 5):
        made.unlink(missing_ok=True)
        begin_ns = since_ns + begin_s * 10**9
        done = fabmon_here("cut", str(whole), "--from", time_of_day(begin_ns)[:8], "-o", str(made))
        assert f"it begins two ticks before {date_time(begin_ns)}" in done.stderr
        (found,) = json.loads(printed("query", "findings", str(made)))["findings"]
        ((event,),) = (
            each["events"] for each in json.loads(printed("info", str(made), "--format", "json"))
        )
        text = printed("info", str(made))
        lines = map(
            json.loads,
            printed("replay", str(made), "--speed", "max", "--format", "jsonl").splitlines(),
        )
        replayed = [each for each in lines if each["type"] == "finding"]
        page = printed("report", str(made), "-o", "-")
        assert {found["since"], *(each["since"] for each in replayed)} == {exact}
        assert min(each["time"] for each in replayed) >= exact
        assert (event["since"] or event["time"]) == exact
        assert (f"open since {date_time(since_ns)[5:]}: " in text) == (begin_s > 0)
        assert f"{began} to " in page


@pytest.mark.parametrize(("interval_s", "ticks"), [(0.1, 50), (1.0, 5), (10.0, 2)])
def test_the_picture_of_a_finding_without_evidence_is_of_the_same_seconds_at_every_interval(
    interval_s: float, ticks: int
) -> None:
    """As of one that was recorded, of which --redact leaves the numbers."""
    watching = Watching()
    scene = next(each for each in iter(watching.next, None) if each.findings)
    finding = msgspec.structs.replace(scene.findings[0], evidence=(), worst=None)
    snapshot = replace(scene.snapshot, interval_s=interval_s)
    assert full_port_ticks(finding, snapshot) == ticks
