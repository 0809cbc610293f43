"""Nodes whose lines are nearly right: each is read or refused, and all that follows goes on."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collectors import wire
from collectors.catalog.kernel_log import PATTERNS
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.wire.hello_limits import HelloLimits
from fabmon.fabric.wire.messages import Burst, Frame, Trace
from fabmon.fabric.wire.unpacking import ENCODINGS
from fabmon.feeds.demo import scenario as scenarios
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.errors import Ended, NodeError
from fabmon.feeds.session_reader import SessionReader
from fabmon.feeds.ticks import Inbox
from fabmon.feeds.token_bucket import TokenBucket
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.reading.reader import Recording
from fabmon.recording.writing.writer import Writer
from fabmon.report.scene_report import JsonLines, finding_lines, report_json, table
from fabmon.scenes.pipeline import finding_notes
from tests.builders import new_pipeline
from tests.fuzzing import PATIENCE_S, changed, try_cases
from tests.unit.feeds.fakes import FakeClock, FakeSession

TICKS = 4
MOST_COPIED = 100_000
FABRICS = ("leaf-spine", "rail")
HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 0.5, 2**53, 2**63, 2**64 - 1, 2**64, 10**30, 1e300, -1e300, 1e-300),
    *("", "\u202e\x1b[31m", "a" * 500, "0" * 400, "\ud800", "../../x", "[", "%s", "=1+1"),
    *([], {}, [[]], {"": None}),
)


PIECES = ("²", "٣", "9" * 300, "-1", "_", "/", ":", ".", "[", "0x", "nan", "\\", "\u200b", " ")
"""Put into texts: what a name is taken apart by, and digits that int() does not read."""
KINDS = (
    *(each.name for each in PATTERNS),
    *(f"{family}_{each}" for family in ("xid", "sxid") for each in ("79", *PIECES)),
)


def lines_of(feed: DemoFeed) -> list[dict[str, list[bytes]]]:
    """What each node sends in each tick; half of the nodes pack their frames."""
    packers: dict[str, wire.FramePacker] = {}
    sent: list[dict[str, list[bytes]]] = []
    for _ in range(TICKS):
        tick = feed.step()
        lines: dict[str, list[bytes]] = {host.name: [] for host in feed.hosts}
        for number, (node, hello) in enumerate(tick.hellos):
            if number % 2:
                packers[node] = wire.FramePacker()
                hello = msgspec.structs.replace(hello, encoding=ENCODINGS[0])
            else:
                packers.pop(node, None)
            lines[node].append(msgspec.json.encode(["hello", hello]))
        for node, frame in tick.frames:
            lines[node].append(frame_line(frame, packers.get(node)))
        for node, notice in tick.notices:
            lines[node].append(msgspec.json.encode(["notice", notice]))
        sent.append(lines)
    return sent


def frame_line(frame: Frame, packer: wire.FramePacker | None) -> bytes:
    blocks = [None if block is None else list(block) for block in frame.blocks]
    if packer is None:
        return wire.frame(frame.seq, frame.wall_ns, frame.mono_ns, blocks)
    return packer.frame(frame.seq, frame.wall_ns, frame.mono_ns, blocks)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every list and object in a value, with every index or key of it."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        yield value, key
        if isinstance(item, (dict, list)):
            yield from places(item)


def twisted(line: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """A line with some values replaced, removed, repeated, or taken from elsewhere."""
    if chance.random() < 0.15:
        return changed(line, chance)
    if chance.random() < 0.05:
        return chance.choice(others)
    message = json.loads(line)
    here = list(places(message))
    there = list(places(json.loads(chance.choice(others))))
    many = chance.choice((1, 1, 2, 300))  # Once: many of many would be a message of gigabytes.
    for _ in range(chance.choice((1, 1, 2, 5, 30))):
        holder, key = chance.choice(here)
        what = chance.randrange(6)
        try:
            if what == 0:
                holder[key] = chance.choice(HOSTILE)
            elif what == 1:
                source, at = chance.choice(there)
                holder[key] = source[at]
            elif what == 2:
                source, at = chance.choice(here)
                if len(copied := json.dumps(source[at])) < MOST_COPIED:
                    holder[key] = json.loads(copied)
            elif what == 3:
                del holder[key]
            elif what == 4:
                text = str(holder[key])[:400]
                place = chance.randrange(len(text) + 1)
                holder[key] = text[:place] + chance.choice(PIECES) + text[place:]
            elif isinstance(holder, list):
                holder[key:key], many = [holder[key]] * many, 1
            else:
                holder[f"{key}x"] = holder[key]
        except (LookupError, ValueError, RecursionError):
            continue  # An earlier change took the place away.
    try:
        return json.dumps(message).encode()
    except (ValueError, RecursionError):
        return line


class Node:
    """A node that sends lines, as the session reader of a watch sees it."""

    def __init__(self, name: str, inbox: Inbox, limits: HelloLimits, clock: FakeClock) -> None:
        self.name = name
        self._inbox, self._limits, self._clock = inbox, limits, clock
        self._connect()

    def _connect(self) -> None:
        self._session = FakeSession()
        self._reader = SessionReader(
            self.name,
            self._session,
            self._inbox,
            self._clock,
            self._limits,
            TokenBucket(10.0, 1.0, 0.0),
            last_command_ids={Burst: 1, Trace: 1},
            on_frame=lambda: None,
        )

    async def send(self, lines: list[bytes]) -> NodeStatus:
        """The state of the node after some lines."""
        self._session.put(*lines, Ended("no more lines"))
        before = self._reader.hello
        try:
            await self._reader.run(before)
        except Ended:
            return NodeStatus(self.name, NodeState.UP, self._clock.wall_ns())
        except NodeError as error:
            self._connect()
            reason = str(error)
            return NodeStatus(self.name, NodeState.LOST, self._clock.wall_ns(), reason, reason)
        raise AssertionError("unreachable")


def answers(chance: random.Random) -> list[bytes]:
    """Parts of a burst and of a trace, and a message of the kernel."""
    ports = [{"port": "eth0", "source": "netdev", "metrics": ["tx", "rx"]}]
    burst = {"id": 1, "hz": 10.0, "seconds": 1.0, "ports": ports, "samples": [[1, 2, 3]]}
    path = {"sport": 49152, "end": "silent", "hops": [[["10.0.0.1", 77]], []]}
    message = wire.notice(wire.LOGGED, "kernel_log", "a text", "eth0", chance.choice(KINDS))
    lines = [wire.answer("burst", burst), wire.answer("trace", {"id": 1, "path": path}), message]
    return [twisted(line, lines, chance) for line in lines]


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("kind", FABRICS)
def test_what_a_node_sends_is_read_or_refused_in_bounded_time(tmp_path: Path, kind: str) -> None:
    scenario = scenarios.resized(scenarios.tour(kind), 4, None)
    shape = msgspec.structs.replace(scenario.topology, rails=2, nvlinks=2)
    feed = DemoFeed(msgspec.structs.replace(scenario, topology=shape))
    sent = lines_of(feed)
    every_line = [line for lines in sent for of_node in lines.values() for line in of_node]
    hosts = feed.hosts
    path = tmp_path / "fuzzed.fabrec"

    async def ticks(chance: random.Random) -> list[Tick]:
        clock, inbox = FakeClock(), Inbox(len(hosts))
        nodes = [Node(host.name, inbox, HelloLimits(host), clock) for host in hosts]
        hostile = {node.name for node in chance.sample(nodes, chance.choice((1, 1, 2, 4)))}
        made = []
        for seq, lines in enumerate(sent):
            await clock.run(1.0)
            for node in nodes:
                own = list(lines[node.name])
                if node.name in hostile:
                    own = [
                        twisted(line, every_line, chance) if chance.random() < 0.5 else line
                        for line in own
                    ] + answers(chance)
                inbox.statuses.append(await node.send(own))
            made.append(inbox.take(seq, clock.wall_ns()))
        return made

    def attempt(chance: random.Random) -> None:
        pipeline = new_pipeline(hosts)
        path.unlink(missing_ok=True)
        writer = Writer.create(path, SessionRecord(started_ns=0, interval_s=1.0, hosts=(*hosts,)))
        for tick in asyncio.run(ticks(chance)):
            scene = pipeline.accept(tick)
            writer.write(tick, scene.snapshot, finding_notes(scene))
        writer.close()
        texts = [*finding_lines(scene), table(scene)]
        assert all(line.isprintable() for text in texts for line in text.splitlines())
        for line in (*JsonLines().lines(scene), report_json(scene)):
            json.loads(line)
        with Recording(path) as recording:
            assert len(list(recording.ticks())) == TICKS
            list(recording.verify())
            assert not recording.losses, recording.losses

    try_cases(attempt, share=1 / 8)
