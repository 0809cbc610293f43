"""fabmon without a screen: a stream of lines, or one report."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator

import numpy as np

from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Node
from fabmon.fabric.tick import NodeState
from fabmon.report.scene_report import JsonLines, nodes_up, report_json, table
from fabmon.session.errors import Exit, OutputError

ONCE_S = 15.0
"""How long `--once` waits for the last node, where no --duration says how long to watch."""


async def stream(scenes: AsyncIterator[Scene], duration_s: float | None) -> Exit:
    """Print lines until the time is over or the reader leaves."""
    lines = JsonLines()
    until = None if duration_s is None else time.monotonic() + duration_s
    ever_up = False
    async for scene in scenes:
        ever_up = ever_up or nodes_up(scene) > 0
        if not write(b"".join(lines.lines(scene))):
            return Exit.OK
        if until is not None and time.monotonic() >= until:
            break
    return Exit.OK if ever_up else Exit.NO_NODE


async def once(scenes: AsyncIterator[Scene], style: str, duration_s: float | None) -> Exit:
    """Print one report: when the time is over, or as soon as every node has given rates or failed.

    Most findings need more than the first rates, so that whoever asks for a time gets all of it.
    """
    last: Scene | None = None
    try:
        async with asyncio.timeout(duration_s or ONCE_S):
            async for scene in scenes:
                last = scene
                nodes = scene.snapshot.fabric.nodes
                if duration_s is None and all(_has_settled(scene, node) for node in nodes):
                    break
    except TimeoutError:
        pass
    if last is None:
        return Exit.NO_NODE
    text = report_json(last) if style == "json" else (table(last) + "\n").encode()
    write(text)
    up = nodes_up(last)
    total = len(last.snapshot.fabric.nodes)
    if not up:
        return Exit.NO_NODE
    return Exit.OK if up == total else Exit.SOME_NODES


async def last(scenes: AsyncIterator[Scene], style: str) -> Exit:
    """Print one report of the last scene, when all have come."""
    at_end: Scene | None = None
    async for scene in scenes:
        at_end = scene
    if at_end is None:
        return Exit.NO_NODE
    write(report_json(at_end) if style == "json" else (table(at_end) + "\n").encode())
    return Exit.OK


def _has_settled(scene: Scene, node: Node) -> bool:
    """Whether a node has failed, or all that it has are ports with a rate or without counters."""
    snapshot = scene.snapshot
    status = snapshot.statuses.get(node.name)
    if status is None or status.state is not NodeState.UP:
        return status is not None and status.state in (NodeState.FAILED, NodeState.LOST)
    if not node.ports:
        return bool(node.about)
    rates = snapshot.heat[:, [port.row for port in node.ports]]
    return bool((~np.isnan(rates)).any())


def log_to_stderr() -> None:
    """Say what is lost and what comes back where it does not disturb the report."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="fabmon: %(message)s")
    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)


def write(data: bytes) -> bool:
    """Write to standard output; whether anybody still reads it.

    Raises OutputError where it cannot be written for another reason, as on a full disk.
    """
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        # What is left in the buffer would be tried again, and fail again, as Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return False
        raise OutputError(f"standard output: {error.strerror}") from None
    return True
