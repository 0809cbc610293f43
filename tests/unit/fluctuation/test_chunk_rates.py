"""Rates of whole blocks at a time equal those of tick after tick."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from collectors import wire
from fabmon.fabric.model import Host
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Frame, Hello, decode
from fabmon.feeds.demo.scenario import parse
from fabmon.history.chunk_rates import RateChunk, RateChunkBuilder
from fabmon.history.history import History
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.reading.raw_chunks import raw_chunks
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.writer import Writer
from tests.builders import SECOND_NS, START_NS, hello, port, tick, up
from tests.unit.fluctuation.recorded_runs import rate_chunks, record, shared

CRASH = """
[topology]
kind = "fat-tree"
hosts = 8
rails = 2
[[job]]
payload_gb = 20
[[fault]]
kind = "node_lost"
where = "gpu003"
at = 60
for = 40
crash = true
[[fault]]
kind = "saturated_counter"
at = 30
"""


def _one_by_one(path: Path) -> tuple[dict[str, dict[str, np.ndarray]], list[int], list[set[str]]]:
    """Bits/s by port and direction at every tick of the history, the times, and the senders."""
    expected_by_port: dict[str, dict[str, list[float]]] = {}
    times: list[int] = []
    senders: list[set[str]] = []
    with Timeline([path]) as timeline:
        history = History(timeline.hosts, timeline.interval_s)
        for each in timeline.ticks():
            snapshot = history.accept(each)
            for known in snapshot.fabric.ports:
                ways = expected_by_port.setdefault(known.id, {"tx": [], "rx": []})
                for way, values in ways.items():
                    values += [np.nan] * (len(times) - len(values))
                    values.append(float(snapshot.column(f"{way}_bps")[known.row]))
            times.append(each.time_ns)
            senders.append({name for name, _ in each.frames})
    return (
        {
            name: {way: np.array(values) for way, values in ways.items()}
            for name, ways in expected_by_port.items()
        },
        times,
        senders,
    )


def _at_once(chunks: Sequence[RateChunk], name: str, way: str, times: list[int]) -> np.ndarray:
    values = np.full(len(times), np.nan)
    for rate_chunk in chunks:
        rows = {each.id: each.row for each in rate_chunk.fabric.ports}
        table = rate_chunk.tx_bps if way == "tx" else rate_chunk.rx_bps
        for number, time_ns in enumerate(times):
            place = (time_ns - rate_chunk.start_ns) / (rate_chunk.interval_s * 1e9)
            if 0 <= place < len(table):
                values[number] = table[int(place), rows[name]]
    return values


def _written(directory: Path, ticks: Iterable[Tick]) -> Path:
    """A recording of these ticks of the host `a`."""
    hosts, path = [Host(name="a")], directory / "a.fabrec"
    session = SessionRecord(started_ns=START_NS, interval_s=1.0, hosts=tuple(hosts), tool="test")
    writer, history = Writer.create(path, session), History(hosts)
    for each in ticks:
        writer.write(each, history.accept(each))
    writer.close()
    return path


def _compare(path: Path) -> None:
    expected_by_port, times, senders = _one_by_one(path)
    chunks = rate_chunks(path)
    for name, ways in expected_by_port.items():
        for way, expected in ways.items():
            seen = _at_once(chunks, name, way, times)
            # While a node sends nothing the history keeps its rates for a while; a chunk has none.
            node = name.partition("/")[0]
            silent = np.array([node not in nodes for nodes in senders])
            differs = ~np.isclose(seen, expected, rtol=1e-5, equal_nan=True) & ~silent
            places = np.flatnonzero(differs).tolist()
            assert not places, (name, way, places, seen[differs], expected[differs])


@pytest.mark.parametrize("name", ["shared", "crash"])
def test_rate_chunks_equal_the_rates_of_the_history_at_each_tick(tmp_path: Path, name: str) -> None:
    scenario = shared(1) if name == "shared" else parse(CRASH)
    _compare(record(tmp_path / "a.fabrec", scenario, 340))


def test_reads_that_are_late_absent_doubled_or_reset(tmp_path: Path) -> None:
    """A port counted every third tick, in 64 bits; one in 32 bits, with nulls; a reboot."""
    _compare(_written(tmp_path, _odd_ticks()))


def test_a_source_that_was_not_read_once(tmp_path: Path) -> None:
    """As in a recording that has just begun: its slow sources have not had their turn."""
    layout = [
        wire.BlockLayout("slow", 30, (port("eth0", metrics=("netdev_tx_bytes", "netdev_up")),)),
        wire.BlockLayout("fast", 1, (port("eth1", metrics=("netdev_tx_bytes", "netdev_up")),)),
    ]
    message = decode(wire.hello(layout, {"interval_s": 1.0}))
    assert isinstance(message, Hello)
    ticks = []
    for seq in range(12):
        clock = (seq + 1) * SECOND_NS
        frame = Frame(seq, START_NS + clock, clock, [None, [clock, seq * 1000, 1]])
        ticks.append(tick(seq, {"a": frame}, {"a": message} if not seq else None, up("a")))
    _compare(_written(tmp_path, ticks))


def test_a_node_that_no_list_of_hosts_names_is_one(tmp_path: Path) -> None:
    """As the history has it; reports of such a file failed."""
    with Timeline([record(tmp_path / "a.fabrec", shared(1), 20)]) as timeline:
        unnamed = [replace(each, hosts=()) for each in raw_chunks(timeline)]
        *_, last = RateChunkBuilder().of(unnamed)
    assert {node.name for node in last.fabric.nodes} == set(unnamed[0].hellos)


def test_ports_that_come_and_go_within_a_chunk(tmp_path: Path) -> None:
    """A switch renamed its ports again and again: reports of the recording failed."""
    ticks = []
    for seq in range(60):
        clock = (seq + 1) * SECOND_NS
        said = {"a": hello(port(f"eth{seq // 10}", metrics=("netdev_tx_bytes",)))}
        frame = Frame(seq, START_NS + clock, clock, [[clock, seq * 1000]])
        ticks.append(tick(seq, {"a": frame}, said if seq % 10 == 0 else None, up("a")))
    chunks = rate_chunks(_written(tmp_path, ticks))
    for chunk in chunks:
        assert chunk.tx_bps.shape[1] == len(chunk.fabric.ports) == len(chunk.line_rate_bps) == 6
    last = [each.id for each in chunks[-1].fabric.ports if each.node]
    assert last == ["a/eth5"]


def _odd_ticks() -> Iterator[Tick]:
    layout = [
        wire.BlockLayout("slow", 3, (port("eth0", metrics=("netdev_tx_bytes", "netdev_up")),)),
        wire.BlockLayout("fast", 1, (port("eth1", metrics=("rdma_tx_bytes", "phy_tx_bytes")),)),
    ]
    message = decode(wire.hello(layout, {"interval_s": 1.0}))
    assert isinstance(message, Hello)
    rng = np.random.default_rng(3)
    slow = fast = 0
    for seq in range(400):
        slow += int(rng.integers(0, 1 << 33))
        fast += int(rng.integers(0, 1 << 30))
        if seq == 200:
            slow = fast = 5
        clock = (seq + 1) * SECOND_NS + int(rng.integers(0, 10**8))
        blocks: list[list[int | None] | None] = [
            [clock, slow, 1] if seq % 3 == 0 and not 90 < seq < 120 else None,
            [clock, fast, None if seq % 7 == 3 else fast * 2],
        ]
        if seq % 50 == 13:
            yield Tick(seq, START_NS + seq * SECOND_NS)
            continue
        frame = Frame(seq, START_NS + clock, clock, blocks)
        made = tick(seq, {"a": frame}, {"a": message} if not seq else None, up("a"))
        if seq % 50 == 20:
            later: list[list[int | None] | None] = [
                None,
                [clock + 10**8, fast + 99, fast * 2 + 99],
            ]
            twice = ("a", Frame(seq, START_NS + clock, clock + 10**8, later))
            made = msgspec.structs.replace(made, frames=(*made.frames, twice))
        yield made
