"""Reading sessions and frames, for the tests of polled nodes."""

from __future__ import annotations

import asyncio

from fabmon.fabric.wire.messages import Frame, Hello, Notice, check, decode
from fabmon.feeds.transports.transport import ProbeSession

Messages = list[Hello | Frame | Notice]


async def read_messages(session: ProbeSession, frames: int, patience_s: float = 240.0) -> Messages:
    """The messages of a session up to a number of frames; checks each frame against its hello."""
    messages: Messages = []
    latest: Hello | None = None
    async with asyncio.timeout(patience_s):
        while sum(isinstance(each, Frame) for each in messages) < frames:
            message = decode(await session.readline())
            assert isinstance(message, (Hello, Frame, Notice))
            latest = message if isinstance(message, Hello) else latest
            if isinstance(message, Frame) and latest is not None:
                check(message, latest)
            messages.append(message)
    return messages


def values_of(
    hello: Hello, frame: Frame, port: str, node: str | None = None
) -> dict[str, int | None]:
    """The values of a port in a frame."""
    found: dict[str, int | None] = {}
    for block, values in zip(hello.blocks, frame.blocks, strict=True):
        position = 1
        for item in block.objects:
            width = len(item.metrics)
            if item.port == port and item.node == node and values is not None:
                found.update(zip(item.metrics, values[position : position + width], strict=True))
            position += width
    return found
