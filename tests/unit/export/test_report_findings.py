"""The section of a finding: its sentence, its numbers and its picture are of one moment."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from fabmon.analysis.causes import CAUSES
from fabmon.fabric.wording import bit_rate
from fabmon.report.page.digest import Bins, digest
from fabmon.report.page.findings import findings
from tests.tui.scenes import START_NS, World

WORLD = World(collides=30)


def test_sentence_evidence_and_picture_are_those_of_the_highest_loss() -> None:
    scenes = []
    for seq, lost in ((40, 0.2), (46, 0.52), (58, 0.1)):
        scene = WORLD.scene(seq)
        text = f"leaf1 up5 is full; the group loses {lost:.0%}"
        finding = msgspec.structs.replace(scene.findings[0], lost=lost, text=text)
        scenes.append(replace(scene, findings=(finding,)))
    made = digest(scenes, Bins(START_NS, START_NS + 60 * 10**9, 1.0))
    (reported,) = made.findings.values()
    assert reported.at_ns == scenes[1].snapshot.time_ns
    html = str(findings(made))
    assert "the group loses 52%" in html
    assert "the group loses 10%" not in html
    hot = next(bar for bar in reported.bars if bar.is_subject)
    # Ticks 42 to 46 communicate: what one of them sent is not what the picture shows.
    sent = WORLD.window("tx_bps", [WORLD.guilty[0]], 5, 46)[0]
    assert bit_rate(hot.tx_bps) == bit_rate(sent[sent > 0].mean())


def test_a_picture_in_a_pause_of_the_traffic_is_of_the_seconds_before() -> None:
    """Tick 49 is the second in which the job computes."""
    scene = WORLD.scene(49)
    assert scene.snapshot.column("tx_bps")[WORLD.guilty[0]] == 0
    made = digest([scene], Bins(START_NS, START_NS + 60 * 10**9, 1.0))
    (reported,) = made.findings.values()
    hot = next(bar for bar in reported.bars if bar.is_subject)
    assert hot.tx_util > 0.9
    assert hot.port == "leaf1 up5"
    assert reported.full_s == 3
    html = str(findings(made)).replace("\N{NO-BREAK SPACE}", " ")
    assert "The 3 s when full, of the 5 s with traffic before" in html


def test_the_rule_is_on_the_page_and_not_the_name_of_a_file() -> None:
    """Who gets the page has no documentation."""
    html = str(findings(digest([WORLD.scene(49)], Bins(START_NS, START_NS + 60 * 10**9, 1.0))))
    assert CAUSES["ecmp_collision"].rule.partition("(")[0] in html
    assert ".md" not in html
