"""What a person reads of every cause: the sentence, the picture, what to do, the numbers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from fabmon.analysis.causes import CAUSES
from fabmon.analysis.evidence.null_model import compare_with_hashing
from fabmon.analysis.finding import Change, Condition, Finding
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.model import GPU, RAIL
from fabmon.fabric.time_wording import time_of_day
from fabmon.fabric.wording import bit_rate, number
from fabmon.feeds.demo.feed import START_NS, DemoFeed
from fabmon.report.page.digest import Bins, digest
from fabmon.report.page.findings import findings
from fabmon.tui.cells import DOWN, scale
from fabmon.tui.line import wrap
from fabmon.tui.palette import Depth
from fabmon.tui.run_facts import RunFacts
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.text.finding_groups import finding_groups
from fabmon.tui.text.labels import event_text
from fabmon.tui.text.pages import finding as page
from fabmon.tui.text.pages.findings import finding_lines
from fabmon.tui.text.pages.node import node_page
from fabmon.tui.text.pages.port import counters
from fabmon.tui.text.picture import canvas
from fabmon.tui.text.picture.pictures import PICTURES
from tests import work
from tests.builders import new_pipeline
from tests.fixtures import nvml
from tests.fixtures.hosts import hgx_host
from tests.scenario.test_scenarios import HERE, read
from tests.tui import golden
from tests.tui.explained import analyst, finding_of, played, scene_of
from tests.tui.recordings import Watching
from tests.tui.running import Running, running
from tests.tui.worlds import COLLISION, big
from tests.unit.test_gpus import Node

GOLDENS = Path(__file__).parent / "goldens" / "explained"
SHOWN = {cause.picture: name for name, cause in reversed(CAUSES.items())}.values()
"""The first cause of every picture: its page is kept."""


def lines_of(scene: Scene, finding: Finding, width: int, height: int) -> list[str]:
    screen_state = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR)
    screen_state.take(scene)
    return [
        line.text
        for line in page.page(screen_state.draw_context(scene, width, height), finding, True)
    ]


def test_every_picture_is_of_some_cause_and_has_a_golden() -> None:
    assert set(PICTURES) == {cause.picture for cause in CAUSES.values()}
    assert {path.stem for path in GOLDENS.glob("*.txt")} == set(SHOWN)


def test_a_gpu_with_a_missing_link_is_drawn_as_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_of("missing_nvlinks", tmp_path, monkeypatch)
    screen_state = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR)
    screen_state.take(scene)
    ctx = screen_state.draw_context(scene, 100)
    codes = ctx.codes(scale(ctx.metric, Depth.TRUECOLOR, False))
    gpus = [port for port in scene.snapshot.fabric.ports if port.role == GPU]
    assert [port.label for port in gpus if codes[port.row] == DOWN] == ["g3"]


def test_what_the_gpus_of_a_straggler_do_is_on_its_page_and_on_that_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(nvml.VARIABLE, str(tmp_path / nvml.SCENARIO))
    tree = hgx_host(tmp_path, hcas=8)
    tree.nvml((*nvml.HGX_H100, "activity 0 98 1980 4", "activity 3 100 410 72"))
    snapshot = Node(tree).frames(12)
    condition = Condition(
        cause="straggler",
        severity="warning",
        subject="gpu001",
        rows=tuple(port.row for port in snapshot.fabric.ports if port.role == RAIL),
        text="gpu001 is late",
        evidence=(),
        advice="",
        confidence=0.9,
    )
    scene = analyst().accept(snapshot)
    fields = msgspec.structs.asdict(condition)
    finding = Finding(**fields, since_ns=snapshot.time_ns, seen_ns=snapshot.time_ns)
    scene = replace(scene, findings=(finding,))
    text = "\n".join(lines_of(scene, finding, 100, 40))
    busy = "g0   busy 98 %, 1980 of 1980 MHz, clock lowered: power cap"
    slow = "g3   busy 100 %, 410 of 1980 MHz, clock lowered: hardware slowdown, thermal, hardware"
    assert f"   {busy}" in text
    assert f" ▲ {slow}" in text
    screen_state = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR)
    screen_state.take(scene)
    ctx = screen_state.draw_context(scene, 100)
    shown = "\n".join(line.text for line in node_page(ctx, snapshot.fabric.node("gpu001")))
    assert "busy 100 %, 410 of 1980 MHz, clock lowered: hardware slowdown" in shown


def test_a_straggler_is_drawn_beside_the_hosts_that_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts between them in the order of the fabric may be of other jobs."""
    scene = scene_of("straggler", tmp_path, monkeypatch)
    finding = finding_of(scene, "straggler")
    assert finding is not None
    finding = msgspec.structs.replace(finding, victims=("gpu001", "gpu009", "gpu016"))
    lines = lines_of(scene, finding, 100, 40)
    first = next(n for n, each in enumerate(lines) if "3 hosts that wait for it" in each)
    assert [each.split()[0] for each in lines[first + 1 : first + 5]] == [
        "▲",
        "gpu001",
        "gpu009",
        "gpu016",
    ]
    assert "   → gpu001, gpu009, gpu016" in lines
    twelve = tuple(f"gpu{number:03}" for number in (*range(1, 5), *range(6, 14)))
    finding = msgspec.structs.replace(finding, victims=twelve)
    assert any("7 of the 12 hosts that wait" in each for each in lines_of(scene, finding, 100, 40))


def test_the_page_of_a_receiver_lists_its_senders_first_and_not_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_of("incast", tmp_path, monkeypatch)
    finding = finding_of(scene, "incast")
    assert finding is not None
    ports = scene.snapshot.fabric.ports
    waiting = next(each for each in ports if each.display_name == "gpu014 r1")
    finding = msgspec.structs.replace(
        finding, victims=("gpu015/mlx5_1",), rows=(*finding.rows, waiting.row)
    )
    lines = lines_of(scene, finding, 100, 40)
    tree = next(n for n, each in enumerate(lines) if "Ports that wait for it" in each)
    assert lines[tree + 1].split()[1:3] == ["gpu005", "r1"]
    assert "receives 400 Gb/s" in lines[tree + 1]
    assert "gpu014" in lines[tree + 2]
    assert not any("└ gpu005" in each for each in lines)
    flows = next(n for n, each in enumerate(lines) if each.startswith(" Flows"))
    assert "receive: " in lines[flows]
    assert lines[flows + 1].strip() == "Affected NICs are listed first."
    listed = next(n for n, each in enumerate(lines) if n > flows and " → " in each)
    assert lines[listed].split()[:2] == ["gpu015", "r1"]
    # Before the rates it says why they may add up to more than the link carries.
    assert "all that it sends" in " ".join(lines[flows:listed])


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_is_explained(
    cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentence, picture, advice, evidence with units, victims, what was not visible."""
    scene = scene_of(cause, tmp_path, monkeypatch)
    finding = finding_of(scene, cause)
    assert finding is not None
    text = "\n".join(lines_of(scene, finding, 100, 40))
    if cause in SHOWN:
        golden.check(f"explained/{cause}", text.partition("\n Rule: ")[0])
    flat = " ".join(text.split())
    assert " ".join(CAUSES[cause].rule.split()) in flat
    assert ".md" not in flat
    for said in (finding.text, finding.advice, finding.unseen):
        assert said in flat
    assert all(item.name in text for item in finding.evidence)


def test_on_infiniband_no_hash_collides_and_ports_wait_for_credits() -> None:
    scene = played("ecmp_collision", "collision_infiniband")
    finding = finding_of(scene, "ecmp_collision")
    assert finding is not None
    said = lines_of(scene, finding, 80, 24)
    assert said[0] == " ▲ Overloaded link  leaf1 up3 → spine1"
    assert any(line.startswith(" Next: add `sources=+ib_fabric` to one node") for line in said)
    event = Event(0, 0, "finding", "open ecmp_collision leaf1/swp18")
    assert event_text(event, scene.snapshot.fabric).startswith("Opened: Overloaded link leaf1 ")
    scene = played("slow_receiver", "slow_receiver_infiniband")
    finding = finding_of(scene, "slow_receiver")
    assert finding is not None
    text = " ".join(lines_of(scene, finding, 100, 24))
    assert "gpu005 r1 cannot keep up: it gives its switch no credits 65 % of the time" in text
    assert "% others wait" in text
    assert "pauses" not in text.partition(" Rule: ")[0]
    assert "time without credits" in text


def test_on_infiniband_a_storm_is_of_credits_and_nothing_is_said_of_pfc() -> None:
    scene = played("pause_storm", "pause_storm_infiniband")
    finding = finding_of(scene, "pause_storm")
    assert finding is not None
    said = lines_of(scene, finding, 100, 40)
    assert said[0].startswith(" ▲ Credit starvation  gpu005 r1")
    text = " ".join(" ".join(said).split())
    assert "gpu005 r1 cannot keep up: it gives its switch no credits" in text
    assert "reset or reload its HCA" in text
    assert "HOQLife" in text
    assert "time without credits" in text
    for word in ("PFC", "pause", "ethtool"):
        assert word not in text.partition(" Rule: ")[0], word
    event = Event(0, 0, "finding", f"open pause_storm {finding.subject}")
    assert event_text(event, scene.snapshot.fabric) == "Opened: Credit starvation gpu005 r1"
    scene = played("host_pcie_limit", "pcie_limit_infiniband")
    finding = finding_of(scene, "host_pcie_limit")
    assert finding is not None
    assert "pause" not in " ".join(each.name for each in finding.evidence)


def test_the_number_of_slowed_ports_says_of_what_and_the_queue_how_it_is_seen() -> None:
    for name, sign in (("collision_infiniband", "no credits"), ("collision_without_ecn", "pause")):
        scene = played("ecmp_collision", name)
        finding = finding_of(scene, "ecmp_collision")
        assert finding is not None
        (slowed,) = [each for each in finding.evidence if each.name == "slowed ports"]
        assert re.fullmatch(r"of \d+ that (send|receive)", slowed.unit)
        (queue,) = [each for each in finding.evidence if each.name == "queue"]
        assert queue.value == sign


def test_the_numbers_of_flows_say_what_they_count() -> None:
    scene = played("polarization")
    finding = finding_of(scene, "polarization")
    assert finding is not None
    said = " ".join(" ".join(lines_of(scene, finding, 100, 40)).split())
    assert "At least 64 flows carry this traffic, by the rates and queue pairs" in said
    assert "256 QPs may use these links, idle ones included." in said
    assert "Effective flows: 4.30 equal flows would be as uneven." in said
    assert "4.30 of 256 QPs" in said


def test_a_finding_that_does_not_hold_any_more_says_so_wherever_it_is_read() -> None:
    scene = played("polarization")
    finding = finding_of(scene, "polarization")
    assert finding is not None
    assert finding.seen_ns is not None
    later = replace(scene.snapshot, time_ns=finding.seen_ns + 9 * 10**9)
    scene = replace(scene, snapshot=later)
    screen_state = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR)
    screen_state.take(scene)
    for lines in (
        [line.text for line in finding_lines(screen_state.draw_context(scene, 60), finding)],
        lines_of(scene, finding, 80, 24),
    ):
        assert f"last seen 9 s ago: {finding.text}" in " ".join(" ".join(lines).split())
        assert lines[0].lstrip("◉").split()[:2] == ["△", "Polarization"]


@pytest.mark.parametrize("cause", CAUSES)
def test_sentence_picture_and_advice_are_seen_without_scrolling(
    cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_of(cause, tmp_path, monkeypatch)
    finding = finding_of(scene, cause)
    assert finding is not None
    # 80x24 without header, title and footer, and without the scrollbar.
    lines = lines_of(scene, finding, 79, 21)
    assert max(map(len, lines)) <= 79
    last = wrap(finding.advice, 60)[-1].split()[-1]
    seen = " ".join(" ".join(lines[:21]).split())
    assert finding.text in seen
    assert finding.advice in seen
    assert seen.index(last) > seen.index("since")


@pytest.mark.parametrize("color", ["truecolor", "256", "16", "none"])
async def test_the_page_in_every_colour_mode(color: str) -> None:
    async with running(size=(80, 24), color=color) as run:
        await _explain(run, "polarization")
        golden.check(f"explained-{'none' if color == 'none' else 'colours'}", run.text)


async def _explain(run: Running, cause: str) -> None:
    """Send the scene, put the cursor on the finding, press enter."""
    scene = played(cause)
    finding = finding_of(scene, cause)
    assert finding is not None
    await run.send(scene)
    run.app.screen_state.select(finding.key)
    await run.press("4", "enter")
    assert run.view == "finding"


async def test_the_null_model_is_a_line_in_the_bars_and_a_verdict() -> None:
    async with running(size=(120, 40)) as run:
        await _explain(run, "polarization")
        assert (
            "random hashing of 64 flows on 32 links: busiest up to 3.50 times the mean (┊)"
            in run.text
        )
        assert "measured 9.50: more than random" in run.text
        bars = [line for line in run.lines if "┊" in line and "b/s" in line]
        assert len(bars) >= 8


async def test_without_a_null_model_there_is_no_line() -> None:
    async with running(COLLISION, size=(120, 40)) as run:
        await run.press("4", "enter")
        assert "┊" not in run.text
        assert "by chance" not in run.text


async def test_the_guilty_and_the_fullest_are_shown_where_not_all_find_room() -> None:
    async with running(size=(80, 24)) as run:
        await _explain(run, "polarization")
        assert "and 16 more: press w for all" in run.text
        for used in ("up1 ", "up9 ", "up17 ", "up25 "):
            assert used in run.text


async def test_a_hop_of_the_tree_opens_its_switch() -> None:
    async with running(size=(120, 40)) as run:
        await _explain(run, "slow_receiver")
        await run.press("j", "j", "enter")
        assert run.view == "node"
        assert "spine1" in run.lines[1]


def test_who_waits_stands_under_what_he_waits_for() -> None:
    scene = played("slow_receiver")
    root = finding_of(scene, "slow_receiver")
    assert root is not None
    waits, other = (
        msgspec.structs.replace(
            root, cause="congested_path", subject=name, victims=(), rows=rows, lost=0.1
        )
        for name, rows in (("spine1", ()), ("gpu099", (99_999,)))
    )
    groups = finding_groups([other, root, waits], scene.snapshot.fabric)
    found = [(each.first.subject, [inner.subject for inner in each.explained]) for each in groups]
    assert found == [("gpu099", []), ("gpu005/mlx5_1", ["spine1"])]


async def test_one_who_waits_is_shown_inside_its_root() -> None:
    scene = played("slow_receiver")
    root = finding_of(scene, "slow_receiver")
    assert root is not None
    victim = msgspec.structs.replace(
        root, cause="congested_path", subject="spine1", victims=(), rows=(), text="spine1 waits"
    )
    async with running(size=(120, 40)) as run:
        await run.send(replace(scene, findings=(*scene.findings, victim)))
        assert "  └ ▲ Congested path  spine1" in run.text


def test_the_rates_of_a_link_are_not_cut_at_80_columns() -> None:
    scene = COLLISION.scene(70)
    finding = msgspec.structs.replace(scene.findings[0], cause="degraded_link")
    for width in (72, 79):
        rates = [line for line in lines_of(scene, finding, width, 24) if " 400 Gb/s  tx " in line]
        assert len(rates) == 2
        assert all(line.rstrip().endswith("b/s") for line in rates)


BIG = big()


@pytest.mark.parametrize("cause", ["ecmp_collision", "straggler", "slow_receiver", "degraded_link"])
def test_a_page_costs_little_at_8192_rails(cause: str) -> None:
    scene = BIG.scene(70)
    finding = msgspec.structs.replace(scene.findings[0], cause=cause)
    if cause == "straggler":
        host = scene.snapshot.fabric.node("gpu500")
        finding = msgspec.structs.replace(finding, rows=tuple(p.row for p in host.ports))
    lines_of(scene, finding, 119, 37)  # makes what is kept
    with work.counted() as done:
        lines_of(scene, finding, 119, 37)
    assert done.lines < 200_000


def test_the_picture_of_a_finding_that_does_not_hold_is_of_the_time_at_which_it_last_held() -> None:
    then, now = COLLISION.scene(50), COLLISION.scene(70)
    found = then.findings[0]
    ended = msgspec.structs.replace(found, seen_ns=then.snapshot.time_ns)
    before, after = (lines_of(scene, ended, 120, 40) for scene in (then, now))

    def bars_in(lines: list[str]) -> list[str]:
        return [text for text in lines if " up" in text and "/s" in text and "→" not in text]

    assert bars_in(before)
    assert "".join(bars_in(after)).count("△") == 1
    assert [each.replace("△", "▲") for each in bars_in(after)] == bars_in(before)
    assert any("mean of 5 s until 14:07:30Z, when it last held" in text for text in after)
    assert not any("when it last held" in text for text in before)
    assert any("Evidence  at 14:07:30Z, when it last held" in text for text in after)


def test_all_numbers_of_the_page_of_a_collision_are_of_one_moment() -> None:
    """The sentence, the bars, what random hashing is compared with, and the evidence: while it
    holds, while its traffic is even again but its rule still holds, and once it has ended."""
    scenario, _ = read(HERE / "collision.toml")
    feed = DemoFeed(scenario)
    pipeline = new_pipeline(feed.hosts)
    fault = scenario.fault[0]
    assert fault.duration is not None
    ended_s = fault.at + fault.duration
    shown: dict[int, list[str]] = {}
    found: Finding | None = None
    for second in range(round(ended_s) + 30):
        scene = pipeline.accept(feed.step())
        found = finding_of(scene, "ecmp_collision") or found
        if found is not None:
            shown[second] = lines_of(scene, found, 120, 60)
    assert found is not None
    assert {second > ended_s for second in shown} == {False, True}
    for second, lines in shown.items():
        text = " ".join(" ".join(lines).split())
        sent = [float(bps) for bps in re.findall(r"up\d+ [^\d\w]*([\d.]+) Gb/s", text)]
        drawn = max(sent) * len(sent) / sum(sent)
        (measured,) = re.findall(r"; measured ([\d.]+)", text)
        (evidence,) = re.findall(r"max/mean ([\d.]+)", text)
        (util,) = re.findall(r"link util ([\d.]+) %", text)
        (lost,) = re.findall(r"lost bandwidth ([\d.]+) %", text)
        assert drawn == pytest.approx(float(measured), abs=0.02), second
        assert float(measured) == pytest.approx(float(evidence), abs=0.006)
        assert max(sent) / 4 == pytest.approx(float(util), abs=0.3)
        assert f"{float(lost):.0f} % of the bandwidth lost" in text
        times = re.findall(r"mean of \d s until (\S+), |Evidence at (\S+), ", text)
        assert len({each for pair in times for each in pair if each}) <= 1


def test_all_of_a_picture_of_an_ended_finding_is_of_its_worst_moment(tmp_path: Path) -> None:
    """The bars, their time, what random hashing does, on its page and in a report. The job sends
    elsewhere from 45 s on, and the collision fades until its link is as even as by chance."""
    scenes = Watching().record(tmp_path / "a.fabrec", 66)
    (worst,) = scenes[40].findings
    (at,) = [n for n, each in enumerate(scenes) if each.changes and not each.findings]
    ((_, last),) = scenes[at].changes
    ended = msgspec.structs.replace(last, lost=worst.lost / 3, worst=worst)
    scenes[at] = replace(scenes[at], changes=((Change.CLOSE, ended),))
    hashing, faded = compare_with_hashing(worst), compare_with_hashing(ended)
    assert hashing is not None
    assert faded is not None
    assert hashing.seen > 1.5 * faded.seen
    worst_ns = worst.seen_ns or 0

    text = " ".join(" ".join(lines_of(scenes[-1], ended, 120, 40)).split())
    assert f"mean of 5 s until {time_of_day(worst_ns)}, at its worst" in text
    assert f"random hashing of {hashing.flows} flows on 4 links" in text
    assert f"measured {number(hashing.seen)}" in text
    sent = [float(each) for each in re.findall(r"up\d [^\d\w]*([\d.]+) Gb/s", text)]
    assert max(sent) * len(sent) / sum(sent) == pytest.approx(hashing.seen, abs=0.01)
    assert f"Evidence at {time_of_day(worst_ns)}, at its worst" in text

    made = digest(scenes, Bins(START_NS, scenes[-1].snapshot.time_ns, 1.0))
    (reported,) = made.findings.values()
    assert reported.at_ns == worst_ns
    drawn = [bar.tx_bps for bar in reported.bars]
    assert max(drawn) * len(drawn) / sum(drawn) == pytest.approx(hashing.seen, abs=0.01)
    html = findings(made).replace("\N{NO-BREAK SPACE}", " ")
    assert f"Mean of the 5 s before {time_of_day(worst_ns)}, at its worst" in html


def test_a_straggler_that_ended_is_drawn_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = scene_of("straggler", tmp_path, monkeypatch)
    finding = finding_of(scene, "straggler")
    assert finding is not None
    rows = [port.row for port in scene.snapshot.fabric.ports if port.node == finding.subject]
    ended_ns = scene.snapshot.time_ns - 4 * 10**9
    ended = msgspec.structs.replace(finding, seen_ns=ended_ns, until_ns=ended_ns)
    lines = lines_of(scene, ended, 120, 40)
    title = next(n for n, each in enumerate(lines) if "that wait for it" in each)
    assert f"60 s until {time_of_day(ended_ns)}, when it last held" in lines[title]
    then = [scene.snapshot.window(f"{way}_bps", rows, 5)[:, 0].sum() for way in ("tx", "rx")]
    assert bit_rate(float(max(then))) in lines[title + 1]


def test_a_picture_of_now_beside_evidence_of_then_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time at which the finding last held is no longer in memory, as after half an hour."""
    then, now = COLLISION.scene(50), COLLISION.scene(70)
    monkeypatch.setattr(canvas, "recent", lambda *_: np.full((1, 5), np.nan, np.float32))
    held_ns = then.snapshot.time_ns
    for ended in (
        msgspec.structs.replace(then.findings[0], seen_ns=held_ns),
        msgspec.structs.replace(then.findings[0], seen_ns=None, until_ns=held_ns),
    ):
        lines = lines_of(now, ended, 120, 40)
        assert any("mean of 5 s until 14:07:50Z, after the finding" in text for text in lines)
        assert any("Evidence  at 14:07:30Z, when it last held" in text for text in lines)


def test_an_mtu_is_shown_in_full() -> None:
    scene = played("slow_receiver", "slow_receiver")
    snapshot = scene.snapshot
    port = next(each for each in snapshot.fabric.ports if each.display_name == "gpu005 r1")
    values = snapshot.values.copy()
    values[port.row, snapshot.columns["netdev_mtu"]] = 4200.0
    scene = replace(scene, snapshot=replace(snapshot, values=values))
    screen_state = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR)
    screen_state.take(scene)
    shown = [line.text for line in counters(screen_state.draw_context(scene, 120, 60), port)]
    (mtu,) = [each for each in shown if each.split()[:1] == ["netdev_mtu"]]
    assert mtu.split()[1:3] == ["4200", "B"]
