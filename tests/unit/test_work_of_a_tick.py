"""What a node more costs at every tick, in lines of Python that are run: the same on any machine.

With a thousand nodes these lines are most of what the console costs. A number that falls is put
here; one that has to rise by more than a tenth needs a reason.
"""

from __future__ import annotations

import asyncio
import contextlib

from collectors import wire
from fabmon.fabric.model import Host
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.hello_limits import HelloLimits
from fabmon.feeds.errors import Ended
from fabmon.feeds.session_reader import SessionReader
from fabmon.feeds.ticks import Inbox, RealClock
from fabmon.feeds.token_bucket import TokenBucket
from fabmon.history.history import History
from fabmon.recording.writing.block_builder import BlockBuilder
from tests import work
from tests.builders import SECOND_NS, START_NS, port
from tests.unit.feeds.fakes import FakeSession

READING, HISTORY, RECORDING = 91, 18, 29
"""Lines for each node and tick."""
SOURCES = ("ib", "ib_errors", "rdma", "rdma_errors", "probe")
TICKS = 4


def _lines_of_nodes(nodes: int) -> list[int]:
    """The lines of the last tick: of reading, history, recording."""
    names = [f"gpu{number:03}" for number in range(nodes)]
    ports = [port(f"eth{number}", f"eth{number}") for number in range(8)]
    layout = [wire.BlockLayout(source, 1, ports) for source in SOURCES]
    width = sum(len(each.metrics) for each in ports)
    hello = wire.hello(layout, {"interval_s": 1.0, "encoding": "delta-deflate"})
    packers = [wire.FramePacker() for _ in names]
    clock, inbox = RealClock(), Inbox(nodes)
    sessions = [FakeSession() for _ in names]
    readers = [
        SessionReader(
            name,
            session,
            inbox,
            clock,
            HelloLimits(Host(name=name)),
            TokenBucket(100.0, 1.0, clock.monotonic()),
            last_command_ids={},
            on_frame=lambda: None,
        )
        for name, session in zip(names, sessions, strict=True)
    ]
    history, rows = History([Host(name=name) for name in names]), BlockBuilder()
    counts: list[int] = []

    async def read(reader: SessionReader, session: FakeSession) -> None:
        session.put(Ended("no more lines"))
        with contextlib.suppress(Ended):
            await reader.run(reader.hello)

    for seq in range(TICKS):
        for packer, session in zip(packers, sessions, strict=True):
            block = [(seq + 1) * SECOND_NS, *[seq * 1000] * width]
            line = packer.frame(seq, START_NS, (seq + 1) * SECOND_NS, [block] * len(SOURCES))
            session.put(*([hello] if not seq else []), line)
        with work.counted("fabmon") as reading:
            for reader, session in zip(readers, sessions, strict=True):
                asyncio.run(read(reader, session))
        tick: Tick = inbox.take(seq, START_NS + seq * SECOND_NS)
        assert len(tick.frames) == nodes
        with work.counted("fabmon") as taken:
            history.accept(tick)
        with work.counted("fabmon") as recorded:
            rows.add(tick, 0.0)
        counts = [reading.lines, taken.lines, recorded.lines]
    return counts


def test_a_node_more_costs_no_more_lines_than_it_did() -> None:
    few, many = _lines_of_nodes(8), _lines_of_nodes(24)
    each = [(more - less) / 16 for less, more in zip(few, many, strict=True)]
    for name, lines, known in zip(
        ("reading", "history", "recording"), each, (READING, HISTORY, RECORDING), strict=True
    ):
        assert lines <= 1.1 * known, f"{name}: {lines:g} lines for each node and tick, not {known}"
        assert lines >= 0.9 * known, f"{name}: now {lines:g} lines: put that here"
