"""Seeking shows the same values and ages as live."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collectors import wire
from collectors.wire import Object
from fabmon.fabric.model import Host
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.wire.messages import Frame, Hello, decode
from fabmon.history.history import History
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.writer import Writer
from tests.builders import SECOND_NS, START_NS, port, tick, up

STEADY, SILENT, BACK, SLOW, NEVER = NODES = ("steady", "silent", "back", "slow", "never")
SILENT_FROM, BACK_AT, TICKS = 240, 265, 300
"""A block of the recording ends at 256: nodes that are silent then have reads before it only."""
HOSTS = [Host(name=name) for name in NODES]


def two_sources(node: str) -> Hello:
    """A port that is read at every tick; its line rate and drops are read at every tenth."""
    facts = Object("eth0", "ethernet", "eth0", {}, ("netdev_speed_bps", "netdev_rx_drops"))
    metrics = ("netdev_up", "netdev_tx_bytes", "netdev_rx_bytes")
    layout = [
        wire.BlockLayout("netdev", 1, [port("eth0", f"{node}-eth0", metrics)]),
        wire.BlockLayout("netdev_slow", 10, [facts]),
    ]
    message = decode(wire.hello(layout, {"interval_s": 1.0}))
    assert isinstance(message, Hello)
    return message


def sends(node: str, seq: int) -> bool:
    """`silent` stops, `back` stops for a while, `never` sends a hello and no frame."""
    if node in (SILENT, BACK) and seq >= SILENT_FROM:
        return node == BACK and seq >= BACK_AT
    return node != NEVER


def ticks() -> list[Tick]:
    hellos = {node: two_sources(node) for node in NODES}
    made = []
    for seq in range(TICKS):
        frames = {}
        for number, node in enumerate(NODES):
            if not sends(node, seq):
                continue
            clock = (seq + 1) * SECOND_NS + number
            counted: list[int | None] = [clock, 1, 1000 * seq * (number + 1), seq * seq]
            slow: list[int | None] | None = [clock + 5, 100_000_000, seq // 7]
            reads_slow = node != SLOW or (seq + number) % 10 == 0
            frames[node] = Frame(
                seq, START_NS + clock, clock, [counted, slow if reads_slow else None]
            )
        made.append(tick(seq, frames, hellos if not seq else {}, states(seq)))
    return made


def states(seq: int) -> tuple[NodeStatus, ...]:
    """The statuses that the console reports at a tick."""
    if not seq:
        return up(*NODES)
    now_ns = START_NS + seq * SECOND_NS
    if seq == SILENT_FROM + 3:
        return tuple(NodeStatus(node, NodeState.STALE, now_ns, "silent") for node in (SILENT, BACK))
    if seq == BACK_AT:
        return (NodeStatus(BACK, NodeState.UP, now_ns),)
    return ()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Snapshot]]:
    """A recording, and the snapshots that were computed while it was written."""
    path = tmp_path_factory.mktemp("ages") / "a.fabrec"
    history = History(HOSTS)
    session = SessionRecord(started_ns=START_NS, interval_s=1.0, hosts=tuple(HOSTS))
    writer = Writer.create(path, session)
    seen = []
    for each in ticks():
        seen.append(history.accept(each))
        writer.write(each, seen[-1])
    writer.close()
    return path, seen


@pytest.mark.parametrize("seq", [30, 241, 243, 255, 256, 257, 264, 265, 266, 290, 299])
def test_seeking_restores_values_and_ages(recorded: tuple[Path, list[Snapshot]], seq: int) -> None:
    path, seen = recorded
    live = seen[seq]
    with Timeline([path]) as timeline:
        history = History(timeline.hosts)
        (known,) = timeline.prime(live.time_ns + 1)
        sought = history.accept(known)
    assert (sought.seq, sought.time_ns) == (live.seq, live.time_ns)
    assert sought.statuses == live.statuses
    for name in ("age_s", "heat", "last_heat", "values", "line_rate_bps", "up"):
        ours, theirs = getattr(sought, name), getattr(live, name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, err_msg=name)
    assert sought.stale.tolist() == live.stale.tolist()


def test_a_silent_node_is_stale_and_a_recovered_one_is_not(
    recorded: tuple[Path, list[Snapshot]],
) -> None:
    path, _ = recorded
    with Timeline([path]) as timeline:
        history = History(timeline.hosts)
        (known,) = timeline.prime(START_NS + (BACK_AT + 5) * SECOND_NS + 1)
        snapshot = history.accept(known)
    age_of = {each.node: float(snapshot.age_s[each.row]) for each in snapshot.fabric.ports}
    assert age_of == {
        STEADY: 0,
        SILENT: BACK_AT + 5 - SILENT_FROM + 1,
        BACK: 0,
        SLOW: 0,
        NEVER: np.inf,
    }
    stale = snapshot.stale
    assert [each.node for each in snapshot.fabric.ports if stale[each.row]] == [SILENT]
