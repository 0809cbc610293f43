"""What a watch prints, where standard output is a full disk or a pipe that nobody reads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fabmon.session import printing
from fabmon.session.errors import Exit
from fabmon.session.event_loop import EndSignals


async def scenes_of(count: int) -> AsyncIterator[Any]:
    for number in range(count):
        yield number
        await asyncio.sleep(0.02)


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
    assert 0 < len(await printed(monkeypatch, ours, 10_000)) < 10_000


async def test_a_reader_that_does_not_read_delays_no_alert(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs, ours = os.pipe()
    os.set_blocking(ours, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(ours, b"x" * 4096)
    os.set_blocking(ours, True)
    reader = threading.Timer(30.0, os.close, [theirs])
    reader.start()
    try:
        async with asyncio.timeout(20):
            assert await printed(monkeypatch, ours, 5) == [0, 1, 2, 3, 4]
    finally:
        reader.cancel()
        os.close(theirs)
