"""Plays a packet-level scene through the pipeline."""

from __future__ import annotations

from tests.builders import new_pipeline
from tests.packets.scene import PacketScene
from tests.score.play import Reported, reported_by


def play(scene: PacketScene) -> list[Reported]:
    """The findings of a scene, in the order in which they opened."""
    return reported_by(new_pipeline(scene.hosts()), scene.ticks())
