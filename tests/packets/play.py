"""Plays a packet-level scene through the pipeline, with the detectors of fabmon or with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fabmon.analysis.causes import Thresholds
from fabmon.analysis.evidence.detector_input import Detector
from tests.builders import new_pipeline
from tests.packets.scene import PacketScene
from tests.score.play import Reported, reported_by

MakeDetectors = Callable[[Thresholds], Sequence[Detector]]
"""Makes the detectors that judge a scene, from the default thresholds."""


def play(scene: PacketScene, judged_by: MakeDetectors | None = None) -> list[Reported]:
    """The findings of a scene, in the order in which they opened.

    `judged_by` makes the detectors to use instead of those of fabmon.
    """
    pipeline = new_pipeline(scene.hosts(), judged_by=judged_by)
    return reported_by(pipeline, scene.ticks())
