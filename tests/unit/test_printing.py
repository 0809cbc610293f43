"""What a watch prints, where standard output is a full disk or a pipe that nobody reads."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fabmon.session import printing
from fabmon.session.end_signals import EndSignals
from fabmon.session.errors import Exit


async def scenes_of(count: int) -> AsyncIterator[Any]:
    for number in range(count):
        yield number


async def printed(monkeypatch: pytest.MonkeyPatch, descriptor: int, count: int) -> list[Any]:
    """Scenes that were published while a line of each is printed to a descriptor."""
    published: list[Any] = []
    monkeypatch.setattr(printing.NodesReached, "accept", lambda self, scene: None)
    monkeypatch.setattr(printing, "finding_lines", lambda scene: [f"finding {scene}\n"])
    with os.fdopen(descriptor, "w") as stream, EndSignals() as signals:
        monkeypatch.setattr(sys, "stdout", stream)
        status = await printing.print_findings(scenes_of(count), None, published.append, signals)
    assert status is Exit.NO_NODE
    return published


async def test_a_full_disk_does_not_end_a_watch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = await asyncio.to_thread(os.open, "/dev/full", os.O_WRONLY)
    assert await printed(monkeypatch, full, 5) == [0, 1, 2, 3, 4]
    why = "findings are not printed: standard output: No space left on device"
    assert caplog.messages == [why]


async def test_a_watch_ends_with_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, ours = os.pipe()
    os.close(theirs)
    assert await printed(monkeypatch, ours, 5) == [0]
