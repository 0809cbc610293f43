"""report: one page, checked in a real browser."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fabmon.analysis.fluctuation.results import (
    Fluctuation,
    Foreign,
    Part,
    Slot,
    Spread,
    Step,
    Subject,
)
from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.fabric.time_wording import event_time, utc
from fabmon.fabric.wording import NO_BREAK_SPACE
from fabmon.history.history import History
from fabmon.recording.format.frames import FrameKind
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.reading.reader import Recording
from fabmon.recording.writing.writer import Writer
from fabmon.report.page.digest import Bar, ReportedFinding
from fabmon.report.page.findings import _picture
from fabmon.report.page.fluctuation import fluctuation
from fabmon.report.page.markup import CHART_LEFT, CHART_WIDTH
from fabmon.report.page.timeline import MOST_ROWS
from tests.builders import SECOND_NS, START_NS, frame, hello, port, tick, up
from tests.fixtures import browser
from tests.tui.scenes import lost
from tests.tui.worlds import HEALTHY
from tests.unit.export.test_rates import exported, lines_of
from tests.unit.recording.builders import quiet_ticks, write
from tests.unit.test_cli import fabmon_here


def reported(recording: Path, to: Path, *options: str) -> str:
    done = fabmon_here("report", str(recording), "-o", str(to), *options)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"fabmon: wrote {to}: [\d.]+ [kM]?B, .+Z to .+Z \(.+\)\n", done.stderr)
    return to.read_text("utf-8")


@pytest.fixture(scope="module")
def page(pod7: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    reported(pod7, path)
    return path


def test_only_its_owner_may_read_it(page: Path) -> None:
    assert page.stat().st_mode & 0o777 == 0o600


def test_a_dash_is_standard_output(tmp_path: Path) -> None:
    write(tmp_path / "a.fabrec", quiet_ticks(10))
    done = fabmon_here("report", str(tmp_path / "a.fabrec"), "-o", "-")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == reported(tmp_path / "a.fabrec", tmp_path / "a.html")


def words(html: str) -> str:
    """The text of the page without its elements."""
    text = re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", html, flags=re.DOTALL)
    return unescape(text).replace(NO_BREAK_SPACE, " ")


def bits(text: str) -> float:
    """`188 G` as a number."""
    value, _, prefix = text.partition(" ")
    return float(value) * 1000.0 ** " kMGT".index(prefix or " ")


def embedded(html: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="heat-data">(.*?)</script>', html)
    assert match is not None
    data: dict[str, Any] = json.loads(match[1])
    return data


def test_the_browser_reports_no_error(page: Path, tmp_path: Path) -> None:
    shown = browser.dom(page)
    assert shown.console == []
    assert 'aria-pressed="true"' in shown.dom  # the script ran
    broken = tmp_path / "broken.html"
    broken.write_text("<script>nowhere()</script>")
    assert "nowhere is not defined" in str(browser.dom(broken).console)


def test_nothing_is_fetched(page: Path) -> None:
    html = page.read_text()
    assert "default-src 'none'" in unescape(html)
    assert set(re.findall(r'(?:href|src|action)="(.)', html)) == {"#"}
    assert not re.search(r"""@import|url\(|https?:|["'(]//""", html)


def test_light_and_dark_are_both_drawn(page: Path, tmp_path: Path) -> None:
    light = browser.picture(page, tmp_path / "light.png", "light", 500, 400)
    dark = browser.picture(page, tmp_path / "dark.png", "dark", 500, 400)
    assert light.shape == dark.shape == (400, 500, 3)
    assert np.median(light) > 230
    assert np.median(dark) < 40
    for picture in (light, dark):
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 50


def test_findings_are_those_of_the_lines(pod7: Path, page: Path, tmp_path: Path) -> None:
    lines = lines_of(exported(pod7, tmp_path / "a.jsonl"))
    by_key = {(x["key"], x["since"]): x for x in lines if x["type"] == "finding"}
    ticks = {x["time"]: x["links"] for x in lines if x["type"] == "tick"}
    html = page.read_text()
    sections = re.findall(r'<section class="finding.*?</section>', html, flags=re.DOTALL)
    assert len(sections) == len(by_key) >= 3
    pictures = 0
    for section, finding in zip(sections, by_key.values(), strict=True):
        text = words(section)
        for part in (finding["advice"], finding["unseen"]):
            assert part in text
        missing = [each["name"] for each in finding["evidence"] if each["name"] not in text]
        assert not missing or finding["until"] is None
        if finding["until"] is not None:
            assert finding["text"] in text
            confidence = f"confidence {100 * finding['confidence']:.0f} %"
            assert confidence in text.replace(NO_BREAK_SPACE, " ")
        at = re.search(r"Mean of the (\d) s( with traffic)? before (\S+)Z", text)
        if at is None:
            continue
        pictures += 1
        until = next(n for n, time in enumerate(ticks) if time[11:19] == at[3])
        recent = list(ticks.values())[max(0, until + 1 - int(at[1])) : until + 1]
        named = [{f"{x['node']} {x['label'] or x['port']}": x for x in links} for links in recent]
        bars = re.findall(
            r"<g[^>]*><title>(.*?): (.*?)</title>", section.replace(NO_BREAK_SPACE, " ")
        )
        names = [name for name, _ in bars]
        assert finding["ports"][0] in [
            f"{named[-1][n]['node']}/{named[-1][n]['port']}" for n in names
        ]
        moved = [max(x[n][f"{way}_bps"] or 0 for n in names for way in ("tx", "rx")) for x in named]
        busy = [
            x
            for x, most in zip(named, moved, strict=True)
            if not at[2] or (most and most >= max(moved) / 2)
        ]
        for name, label in bars:
            for way, shown in re.findall(r"(tx|rx) ([\d.]+ \w?)b/s", label):
                rates = [x[name][f"{way}_bps"] for x in busy or named[-1:]]
                mean = float(np.mean([rate for rate in rates if rate is not None]))
                assert bits(shown) == pytest.approx(mean, rel=0.01)
    assert pictures


def test_the_heatmap_has_the_rates_of_the_lines(pod7: Path, page: Path, tmp_path: Path) -> None:
    lines = lines_of(exported(pod7, tmp_path / "a.jsonl", "--links", "node:leaf1 port:swp37"))
    links = [link for line in lines if line["type"] == "tick" for link in line["links"]]
    data = embedded(page.read_text())
    assert data["bins"] == len(links) == 70
    row = data["rows"].index("leaf1 up5")
    layer = next(each for each in data["layers"] if each["name"] == "highest")
    table = np.frombuffer(base64.b64decode(layer["data"]), np.uint8).reshape(-1, 70)
    assert len(table) == len(data["rows"])
    busy = [None if x["tx_util"] is None else max(x["tx_util"], x["rx_util"]) for x in links]
    assert [None if v == data["absent"] else v / data["full"] for v in table[row].tolist()] == [
        None if v is None else pytest.approx(min(1.0, v), abs=0.003) for v in busy
    ]


def _rows(html: str) -> list[list[str]]:
    """The cells of all tables in the section on fluctuation."""
    section = re.search(r'<section class="part" id="fluctuation">(.*?)</section>', html, re.DOTALL)
    assert section is not None
    rows = re.findall(r"<tr>(.*?)</tr>", section[1], re.DOTALL)
    return [
        [words(cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)]
        for row in rows
    ]


def test_fluctuation_of_a_part_has_the_numbers_of_fabmon_fluctuate(
    pod7: Path, tmp_path: Path
) -> None:
    options = ["--from", "+20s", "--to", "+60s"]
    html = reported(pod7, tmp_path / "a.html", *options)
    cells = _rows(html)
    found = 0
    for by in ("job", "rail", "pair", "link"):
        done = fabmon_here("fluctuate", str(pod7), "--by", by, *options)
        head, _, *lines = done.stdout.splitlines()
        assert head in words(html)
        columns = re.split(r"\s{2,}", lines[0])[:-1]  # The last is the strip, here a curve.
        for line in lines[1 : lines.index("")]:
            printed = re.split(r"\s{2,}", line)[: len(columns)]
            if "·" not in printed[1:3]:
                own = [row[:1] + row[2:] for row in cells if row[:1] == printed[:1]]
                assert printed in own or by in ("pair", "link"), (printed, own)
                found += printed in own
        for line in lines[lines.index("") :]:
            if re.match(r"  \d{4}-", line):
                assert re.split(r"\s{2,}", line.strip()) in cells
            if line.startswith("  leaf"):
                leaf, _, share = line.strip().partition(": ")
                assert [leaf, "", share] in cells
    assert found > 50


def test_steps_hours_and_others_are_drawn_where_they_are_known() -> None:
    begin, hour_ns = START_NS // (3600 * SECOND_NS) * 3600 * SECOND_NS, 3600 * SECOND_NS
    spread = Spread(
        median_bps=200e9, p5_bps=100e9, p95_bps=300e9, mean_bps=200e9, cov=0.3, samples=9,
        share=0.5, whole=True,
    )  # fmt: skip
    rails = Subject(
        kind="all",
        name="all rails",
        line_rate_bps=400e9,
        spread=spread,
        steps=(Step(begin + 2 * hour_ns, 20.0, 300e9, 150e9),),
        hours=(Slot(0, 200e9, 100e9, 300e9, 0.1, 360), Slot(23, 60e9, 50e9, 70e9, 0.1, 6)),
        weekdays=(Slot(0, 200e9, 100e9, 300e9, 0.1, 360),),
        strip=(Part(250e9, 300e9, 310e9), None, Part(150e9, 150e9, 150e9)),
    )
    found = Fluctuation(
        from_ns=begin, until_ns=begin + 4 * hour_ns, watched_s=4 * 3600, interval_s=1.0,
        zone="Europe/Berlin", subjects=(rails,),
        foreign=(
            Foreign(switch="leaf1", low=0.25, high=0.5, sent_bytes=2e12),
            Foreign(switch="leaf2", low=None, high=None, sent_bytes=0.0, unseen="nobody counts"),
        ),
    )  # fmt: skip
    html = fluctuation(found)
    step = re.search(r'<line x1="(\S+)" x2="\S+" y1="\S+" y2="\S+" class="step"', html)
    assert step is not None
    assert float(step[1]) == pytest.approx(CHART_LEFT + (CHART_WIDTH - CHART_LEFT) / 2, abs=0.5)
    text = re.sub(r"\s+", " ", words(html))
    assert "300 Gb/s -> 150 Gb/s -50.0 %" in text
    assert "By hour of the day, Europe/Berlin" in text
    assert html.count('class="unseen"') == 22 + 1, "22 hours of which nothing is known, and a bar"
    below = re.findall(r'class="axis middle">([^<]*)</text>', html)
    assert below[:24] == [f"{hour:02}" for hour in range(24)]
    assert below[24:] == ["200", "60"], "the medians below their boxes"
    assert "day of the week" not in html, "one day is no week"
    assert "leaf1 25 to 50 % of 2.00 TB" in text
    assert "leaf2 not known: nobody counts" in text


def test_the_summary_counts_what_there_is(pod7: Path, page: Path, tmp_path: Path) -> None:
    lines = lines_of(exported(pod7, tmp_path / "a.jsonl"))
    ticks = [line for line in lines if line["type"] == "tick"]
    found = {(x["key"], x["since"]) for x in lines if x["type"] == "finding"}
    text = re.sub(r"\s+", " ", words(page.read_text()))
    assert f"{len(found)} findings" in text
    assert f"{ticks[-1]['nodes_total']} nodes" in text
    assert f"{len(ticks)} ticks" in text
    assert "none losses" in text
    assert "pod7.fabrec" in text
    assert "gpu014 lost" in text


@pytest.mark.parametrize("util", [0.0, float("nan")])
def test_ports_without_traffic_are_not_drawn(util: float) -> None:
    """Of a lost node nothing is measured."""
    gone = lost(HEALTHY.fabric.nodes[0], START_NS)
    bar = Bar("gpu005 r0", "r0", True, util, util, util, util, float("nan"))
    drawn = ReportedFinding(gone, gone, "gpu005", (), START_NS, (bar,), 0)
    assert _picture(drawn, dated=False) is None
    busy = replace(drawn, bars=(bar, replace(bar, tx_util=0.5)))
    assert "<svg" in str(_picture(busy, dated=False))


HOSTILE = "</script><script>boom()</script><img src=x onerror=boom()>\"'&{{7*7}}"


def test_hostile_names_are_text(tmp_path: Path) -> None:
    host = Host(name=HOSTILE)
    record = SessionRecord(
        started_ns=START_NS, interval_s=1.0, hosts=(host,), title=HOSTILE, recorder=HOSTILE
    )
    hostile_hello = hello(port(HOSTILE, HOSTILE, driver=HOSTILE), hostname=HOSTILE)
    lost = NodeStatus(HOSTILE, NodeState.LOST, START_NS, HOSTILE, HOSTILE)
    writer = Writer.create(tmp_path / "a.fabrec", record)
    history = History([host])
    for seq in range(20):
        values = (int(seq < 5), seq * 1000, seq * 1000, 0)
        each = tick(
            seq,
            {HOSTILE: frame(seq, *values)} if seq < 10 else {},
            {HOSTILE: hostile_hello} if seq == 0 else {},
            up(HOSTILE) if seq == 0 else (lost,) if seq == 12 else (),
        )
        writer.write(each, history.accept(each))
    writer.close()
    html = reported(tmp_path / "a.fabrec", tmp_path / "a.html")
    shown = browser.dom(tmp_path / "a.html")
    assert shown.console == []
    assert len(re.findall("<script", shown.dom)) == 2
    assert "<img" not in shown.dom
    assert HOSTILE in words(html)
    assert embedded(html)["rows"] == [f"{HOSTILE} r0"]


def test_losses_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    write(path, quiet_ticks(300))
    with Recording(path) as recording:
        block = next(e for e in recording.entries() if e.header.kind == FrameKind.BLOCK)
    data = bytearray(path.read_bytes())
    data[block.offset + 100] ^= 1
    path.write_bytes(data)
    done = fabmon_here("report", str(path), "-o", str(tmp_path / "a.html"))
    assert done.returncode == 0
    assert "are lost" in done.stderr
    text = re.sub(r"\s+", " ", words((tmp_path / "a.html").read_text()))
    assert "1 losses of the recording: see below" in text
    assert f"a.fabrec: bytes {block.offset} to {block.end}: " in text, text[-900:]
    assert "damaged frame (block)" in text


def test_a_part_begins_with_earlier_findings(pod7: Path, tmp_path: Path) -> None:
    html = reported(pod7, tmp_path / "a.html", "--from", "+22s", "--to", "+26s")
    with Recording(pod7) as recording:
        begin = recording.start_ns
    text = words(html)
    assert f"{event_time(begin + 22 * SECOND_NS, False)} to" in text
    assert "ECMP collision" in text
    assert embedded(html)["bins"] == 5


def test_many_links_and_hours_stay_a_small_page(tmp_path: Path) -> None:
    ports = [port(f"eth{n}", f"a-{n}") for n in range(64)]
    hosts = [Host(name=f"gpu{n:03}") for n in range(40)]
    record = SessionRecord(started_ns=START_NS, interval_s=60.0, hosts=tuple(hosts))
    writer = Writer.create(tmp_path / "a.fabrec", record)
    hellos = {host.name: hello(*ports, interval_s=60.0) for host in hosts}
    for seq in range(0, 60 * 500, 60):
        values = [1, seq * 1000, 0, 0] * len(ports)
        frames = {host.name: frame(seq, *values) for host in hosts} if seq < 600 else {}
        writer.write(tick(seq, frames, hellos if seq == 0 else {}, up(*hellos) if seq == 0 else ()))
    writer.close()
    html = reported(tmp_path / "a.fabrec", tmp_path / "a.html")
    data = embedded(html)
    assert len(hosts) * len(ports) > MOST_ROWS
    assert data["rows"] == [host.name for host in hosts]
    assert data["bins"] == 167, "500 ticks, three in a bin"
    assert len(html) < 1_000_000


def test_times_of_more_than_a_day_have_dates(tmp_path: Path) -> None:
    host, hour_s = Host(name="gpu001"), 3600
    record = SessionRecord(started_ns=START_NS, interval_s=hour_s, hosts=(host,))
    writer = Writer.create(tmp_path / "a.fabrec", record)
    history = History([host])
    first_hello = hello(port("eth0", "a"), interval_s=hour_s)
    lost = NodeStatus(host.name, NodeState.LOST, START_NS, "no route", "no route")
    for hour in range(60):
        seq = hour * hour_s
        changed = up(host.name) if hour % 24 == 0 else (lost,) if hour % 24 == 12 else ()
        is_up = hour % 24 < 12
        frames = {host.name: frame(seq, 1, seq, seq, 0)} if is_up else {}
        each = tick(seq, frames, {host.name: first_hello} if hour % 24 == 0 else {}, changed)
        writer.write(each, history.accept(each))
    writer.close()
    reported(tmp_path / "a.fabrec", tmp_path / "a.html")
    shown = browser.dom(tmp_path / "a.html")
    text = words(shown.dom)
    assert shown.console == []
    days = [utc(START_NS + hour * hour_s * SECOND_NS) for hour in (12, 36)]
    assert all(f"{day:%m-%d %H:%M:%S}" in text for day in days), text
    assert not re.search(r"(?<!\d\d-\d\d )\b\d\d:\d\d:\d\d", text), "a time without its date"


def test_a_page_of_nothing_is_a_page(tmp_path: Path) -> None:
    record = SessionRecord(started_ns=START_NS, interval_s=1.0, hosts=(Host(name="gpu001"),))
    writer = Writer.create(tmp_path / "a.fabrec", record)
    for seq in range(3):
        writer.write(tick(seq))
    writer.close()
    reported(tmp_path / "a.fabrec", tmp_path / "a.html")
    shown = browser.dom(tmp_path / "a.html")
    assert shown.console == []
    assert "No findings." not in shown.dom
    assert "Nothing is known: no port had a rate." in shown.dom
