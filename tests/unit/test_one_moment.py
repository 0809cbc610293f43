"""One link at one moment has one value: on the screen, printed, exported, asked."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from fabmon.fabric.time_wording import date_time, time_of_day, utc
from fabmon.fabric.wording import percent
from fabmon.tui.text.labels import port_state
from tests.tui.recordings import Watching, replaying
from tests.unit.test_cli import fabmon

FULL_S = 40
"""A second of the collision on leaf1 up3."""


def printed(*arguments: str) -> str:
    run = fabmon(*arguments)
    assert run.returncode == 0, run.stderr
    return run.stdout


async def test_a_time_that_one_output_prints_is_the_same_tick_for_all_others(
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

    async with replaying(path, from_s=FULL_S, speed=0.1) as run:
        await run.press("space")
        await run.press("colon", *"leaf1 up3", "enter")
        await run.press("t", *second, "enter")
        await run.until(lambda: second in run.header)
        assert percent(share) in run.text


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
        done = fabmon("cut", str(whole), "--from", time_of_day(begin_ns)[:8], "-o", str(made))
        assert f"it begins two ticks before {date_time(begin_ns)}" in done.stderr
        (found,) = json.loads(printed("query", "findings", str(made)))["findings"]
        ((event,),) = (
            each["events"] for each in json.loads(printed("info", str(made), "--format", "json"))
        )
        text = printed("info", str(made))
        lines = map(json.loads, printed("replay", str(made), "--format", "jsonl").splitlines())
        replayed = [each for each in lines if each["type"] == "finding"]
        page = printed("report", str(made), "-o", "-")
        assert {found["since"], *(each["since"] for each in replayed)} == {exact}
        assert min(each["time"] for each in replayed) >= exact
        assert (event["since"] or event["time"]) == exact
        assert (f"open since {date_time(since_ns)[5:]}: " in text) == (begin_s > 0)
        assert f"{began} to " in page
