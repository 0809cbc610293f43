"""A hostile node whose ports all change state: its findings are bounded, and so is the time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fabmon.analysis.analyst import Analyst
from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import Condition
from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Host
from fabmon.scenes.pipeline import Pipeline
from fabmon.session.config import load
from fabmon.session.session import Session
from fabmon.tui.text.finding_groups import finding_groups
from tests import work
from tests.builders import LeafSpine, frame, hello, new_pipeline, port, up

METRICS = ("netdev_up", "netdev_carrier_changes", "netdev_tx_bytes", "netdev_rx_bytes")
PORTS = 2048


def scenes_of_a_node_that_flaps(ticks: int) -> list[tuple[Scene, int]]:
    """Scenes of a fabric with such a node, and the lines of Python that were run for each."""
    fabric = LeafSpine()
    pipeline = new_pipeline([*fabric.hosts, Host(name="evil")])
    evil = hello(*(port(f"eth{number}", metrics=METRICS) for number in range(PORTS)))
    scenes = []
    for seq in range(ticks):
        tick = fabric.step()
        values = (each for n in range(PORTS) for each in ((seq // (1 + n % 3)) % 2, seq, seq, seq))
        tick = msgspec.structs.replace(
            tick,
            frames=(*tick.frames, ("evil", frame(seq, *values))),
            hellos=tick.hellos if seq else (*tick.hellos, ("evil", evil)),
            statuses=tick.statuses if seq else (*tick.statuses, *up("evil")),
        )
        with work.counted() as done:
            scene = pipeline.accept(tick)
        scenes.append((scene, done.lines))
    return scenes


def test_findings_of_one_node_are_bounded_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    scenes = scenes_of_a_node_that_flaps(20)
    last, _ = scenes[-1]
    assert len(last.findings) == 1024
    groups = finding_groups(last.findings, last.snapshot.fabric)
    assert [group.subject(last.snapshot.fabric) for group in groups] == ["1024 rails of evil"]
    assert len({finding.key for scene, _ in scenes[8:] for finding in scene.findings}) == 1024
    assert sorted(lines for _, lines in scenes)[10] < 1_000_000
    cut = [record.message for record in caplog.records if "findings" in record.message]
    assert cut == ["evil: more findings than are shown at once"]


def test_findings_of_many_nodes_are_bounded_in_all() -> None:
    fabric = LeafSpine()
    conditions = [
        Condition(
            cause="flapping_link",
            severity="warning",
            subject=f"evil{number % 20}/eth{number // 20}",
            rows=(),
            text="flaps",
            evidence=(),
            advice="",
            confidence=1.0,
        )
        for number in range(20 * 1000)
    ]

    def all_at_once(_: DetectorInput) -> list[Condition]:
        return conditions

    settings = load(Path("/dev/null"))
    analyst = Analyst(settings.thresholds, judged_by=[all_at_once])
    pipeline = Pipeline(Session(settings).history(fabric.hosts), analyst)
    scenes = [pipeline.accept(fabric.step()) for _ in range(6)]
    assert len(scenes[-1].findings) == 16_384
    assert {finding.key for finding in scenes[-1].findings} == {
        finding.key for finding in scenes[-2].findings
    }
