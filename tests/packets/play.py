"""Plays a packet-level scene through the pipeline, with the detectors of fabmon or with others."""

from __future__ import annotations

from tests.builders import new_pipeline
from tests.packets.scene import PacketScene
from tests.score.detector_sets import MakeDetectors
from tests.score.play import Reported, reported_by


def play(scene: PacketScene, judged_by: MakeDetectors | None = None) -> list[Reported]:
    """The findings of a scene, in the order in which they opened.

    `judged_by` makes the detectors to use instead of those of fabmon.
    """
    pipeline = new_pipeline(scene.hosts(), judged_by=judged_by)
    return reported_by(pipeline, scene.ticks())
