"""The section of a finding: its sentence, its numbers and its picture are of one moment."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from fabmon.analysis.causes import CAUSES
from fabmon.analysis.finding import Change
from fabmon.analysis.scene import Scene
from fabmon.fabric.wording import bit_rate
from fabmon.history.bins import PortBins
from fabmon.report.page.digest import MOST_BINS, Bins, digest
from fabmon.report.page.findings import findings
from fabmon.report.page.page import ReportSource, cards, recording
from fabmon.report.page.timeline import timeline
from fabmon.report.scene_report import table
from tests.tui.scenes import START_NS, World

WORLD = World(collides=30)


def test_sentence_evidence_and_picture_are_those_of_the_highest_loss() -> None:
    scenes: list[Scene] = []
    for seq, lost in ((40, 0.2), (46, 0.52), (58, 0.1)):
        scene = WORLD.scene(seq)
        text = f"leaf1 up5 is full; the group loses {lost:.0%}"
        worst = scenes[1].findings[0] if len(scenes) > 1 else None
        finding = msgspec.structs.replace(scene.findings[0], lost=lost, text=text, worst=worst)
        scenes.append(replace(scene, findings=(finding,)))
    made = digest(scenes, Bins(START_NS, START_NS + 60 * 10**9, 1.0))
    (reported,) = made.findings.values()
    assert reported.at_ns == scenes[1].snapshot.time_ns
    html = str(findings(made))
    assert "the group loses 52%" in html
    assert "the group loses 10%" not in html
    hot = next(bar for bar in reported.bars if bar.is_subject)
    sent = WORLD.window("tx_bps", [WORLD.guilty[0]], 5, 46)[0]
    assert bit_rate(hot.tx_bps) == bit_rate(sent.mean())


def test_a_picture_of_a_full_link_is_the_mean_that_its_numbers_are_of() -> None:
    """Also of the second in which the job computes, tick 49."""
    scene = WORLD.scene(49)
    assert scene.snapshot.column("tx_bps")[WORLD.guilty[0]] == 0
    made = digest([scene], Bins(START_NS, START_NS + 60 * 10**9, 1.0))
    (reported,) = made.findings.values()
    hot = next(bar for bar in reported.bars if bar.is_subject)
    sent = WORLD.window("tx_bps", [WORLD.guilty[0]], 5, 49)[0]
    assert hot.tx_bps == pytest.approx(float(sent.mean()))
    assert hot.port == "leaf1 up5"
    html = str(findings(made)).replace("\N{NO-BREAK SPACE}", " ")
    assert "Mean of the 5 s before 14:07:29Z. " in html


def test_the_rule_is_on_the_page_and_not_the_name_of_a_file() -> None:
    """Who gets the page has no documentation."""
    html = str(findings(digest([WORLD.scene(49)], Bins(START_NS, START_NS + 60 * 10**9, 1.0))))
    assert CAUSES["ecmp_collision"].rule.partition("(")[0] in html
    assert ".md" not in html


@pytest.mark.parametrize("ticks", [1, 2, 50, 239, 240, 241, 300, 479, 1000])
@pytest.mark.parametrize("phase", [0.1, 0.3, 0.5, 1.0])
def test_no_bin_is_empty_where_every_tick_is_there(ticks: int, phase: float) -> None:
    """The first tick comes at once, the others in each second, some milliseconds early or late."""
    late_s = np.random.default_rng(ticks).uniform(-0.03, 0.03, ticks)
    after_s = [0.0, *(n - 1 + phase + late_s[n] for n in range(1, ticks))]
    times = [START_NS + round(each * 1e9) for each in after_s]
    made = Bins(times[0], times[-1], 1.0)
    filled = PortBins(made.count)
    for time_ns in times:
        filled.add(np.ones(1, np.float32), made.covered(time_ns))
    assert made.count <= MOST_BINS
    assert np.isfinite(filled.highest).all()


def test_a_tick_that_is_missing_is_a_gap() -> None:
    made = Bins(START_NS, START_NS + 20 * 10**9, 1.0)
    filled = PortBins(made.count)
    for tick in range(21):
        if tick not in (8, 9, 10):
            filled.add(np.ones(1, np.float32), made.covered(START_NS + tick * 10**9))
    assert np.flatnonzero(np.isnan(filled.highest[0])).tolist() == [8, 9, 10]


def test_timeline_cards_and_list_count_the_same_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings without room are counted once, however often they change."""
    monkeypatch.setattr("fabmon.report.page.digest._MOST_FINDINGS", 50)
    scene = WORLD.scene(49)
    changes = [
        (Change.OPEN, msgspec.structs.replace(scene.findings[0], subject=f"leaf1/swp{number}"))
        for number in range(53)
    ]
    scenes = [replace(scene, changes=tuple(changes))] * 4
    made = digest(scenes, Bins(START_NS, START_NS + 60 * 10**9, 1.0))
    assert "<b>53</b><span>findings</span><small>50 critical, 3 not shown</small>" in str(
        cards(made, ())
    )
    assert "10 more findings below, and 3 that did not fit on this page." in str(timeline(made))
    assert "3 more did not fit on this page." in str(findings(made))


def test_a_recording_without_a_rate_has_no_verdict() -> None:
    scene = WORLD.scene(20)
    snapshot = replace(scene.snapshot, heat=np.full_like(scene.snapshot.heat, np.nan))
    empty = replace(scene, snapshot=snapshot, findings=(), changes=())
    made = digest([empty], Bins(START_NS, START_NS + 60 * 10**9, 1.0))
    assert "Nothing is known: no port had a rate." in str(findings(made))
    assert "<b>?</b><span>findings</span><small>no port had a rate</small>" in str(cards(made, ()))
    assert "nothing is known: no port has a rate" in table(empty)


def test_what_is_left_out_of_a_list_is_counted() -> None:
    made = digest([WORLD.scene(49)], Bins(START_NS, START_NS + 60 * 10**9, 1.0))
    losses = tuple(f"bytes {n} to {n + 1} are lost" for n in range(70))
    source = ReportSource("run.fabrec", 1, "fabmon", "vm", "", losses)
    assert "10 more parts not listed." in str(recording(made, [source]))
    few = ReportSource("run.fabrec", 1, "fabmon", "vm", "", losses[:60])
    assert "not listed" not in str(recording(made, [few]))
