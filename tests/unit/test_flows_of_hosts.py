"""From what `rdma` prints on two hosts to flows, live and from a recording."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fabmon.fabric.flows.flow_table import Connections
from fabmon.fabric.model import Host
from fabmon.fabric.port_arrays import NONE
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.hello_limits import HelloLimits
from fabmon.fabric.wire.messages import Hello, WireError, decode
from fabmon.feeds.replay import ReplayFeed
from fabmon.history.history import History
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.writer import Writer
from tests.builders import START_NS, hello, neighbour, port, tick, up
from tests.connections import Wires
from tests.fixtures import hosts, parts

HOSTS = [Host(name="gpu001"), Host(name="gpu002")]


def said_by(root: Path, *rows: dict[str, Any]) -> Hello:
    """The hello of a host with these queue pairs: from its probe, decoded and admitted."""
    tree = hosts.roce_host(root, hcas=2)
    tree.queue_pairs([parts.kernel_queue_pair("mlx5_0"), *rows])
    command = [sys.executable, "-m", "collectors", "--once", "--root", str(root)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=240)
    said = decode(done.stdout.splitlines()[0])
    assert isinstance(said, Hello)
    HelloLimits(Host(name="any")).admit(said)
    return said


@pytest.fixture(scope="module")
def hellos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Hello]:
    """Two connections between two hosts, across their NICs, and one to a host nobody watches."""
    root = tmp_path_factory.mktemp("hosts")
    return {
        "gpu001": said_by(
            root / "one",
            parts.queue_pair("mlx5_0", 300, 700),
            parts.queue_pair("mlx5_1", 301, 900, pid=1, comm="ib_write_bw"),
            parts.queue_pair("mlx5_1", 302, 555),
        ),
        "gpu002": said_by(
            root / "two",
            parts.queue_pair("mlx5_1", 700, 300),
            parts.queue_pair("mlx5_0", 900, 301, pid=1, comm="ib_write_bw"),
        ),
    }


def lines(snapshot: Snapshot) -> list[str]:
    table, ports = snapshot.connections.flows, snapshot.fabric.ports
    return sorted(
        f"{ports[table.src[n]].id} > {ports[table.dst[n]].id if table.dst[n] != NONE else '?'}"
        f" {table.sport[n]} {table.owner(n).label}"
        for n in range(len(table))
    )


EXPECTED = [
    "gpu001/mlx5_0 > gpu002/mlx5_1 62556 job 8812",
    "gpu001/mlx5_1 > ? 52912 job 8812",
    "gpu001/mlx5_1 > gpu002/mlx5_0 57892 ib_write_bw",
    "gpu002/mlx5_0 > gpu001/mlx5_1 57892 ib_write_bw",
    "gpu002/mlx5_1 > gpu001/mlx5_0 62556 job 8812",
]


def test_what_two_hosts_print_becomes_flows_between_their_ports(hellos: dict[str, Hello]) -> None:
    snapshot = History(HOSTS).accept(tick(0, hellos=hellos, statuses=up(*hellos)))
    assert lines(snapshot) == EXPECTED


async def test_a_recording_has_the_same_flows(hellos: dict[str, Hello], tmp_path: Path) -> None:
    ticks = [tick(0, hellos=hellos, statuses=up(*hellos)), *(tick(seq) for seq in range(1, 4))]
    session = SessionRecord(started_ns=START_NS, interval_s=1.0, hosts=tuple(HOSTS))
    writer = Writer.create(tmp_path / "a.fabrec", session)
    for each in ticks:
        writer.write(each)
    writer.close()
    with Timeline([tmp_path / "a.fabrec"]) as timeline:
        history = History(timeline.hosts)
        replayed = [history.accept(each) async for each in ReplayFeed(timeline, speed=None)]
    assert [lines(snapshot) for snapshot in replayed] == [EXPECTED] * len(ticks)


def moments(*reported: Wires | None) -> Sequence[Snapshot]:
    """A host with a NIC, and what it reports tick by tick."""
    history = History([Host(name="gpu001")])

    def said(wires: Wires | None) -> Hello:
        own = [wires.report("gpu001/eth0")] if wires is not None else []
        return hello(port("eth0", "a"), *own)

    ticks: list[Tick] = [
        tick(n, hellos={"gpu001": said(wires)}) for n, wires in enumerate(reported)
    ]
    return [history.accept(each) for each in ticks]


def test_queue_pairs_that_come_and_go_do_not_make_another_fabric() -> None:
    first = Wires().end("gpu001/eth0", 1, 2)
    more = Wires().end("gpu001/eth0", 1, 2).end("gpu001/eth0", 3, 4)
    before, after, without = moments(first, more, None)
    assert [len(each.connections.flows) for each in (before, after, without)] == [1, 2, 0]
    assert before.connections.flows.reporting == {"gpu001"}
    assert without.connections.flows.reporting == frozenset(), "not known is not none"
    assert after.connections is not before.connections


def test_nothing_is_joined_again_while_nothing_changes() -> None:
    history = History([Host(name="gpu001")])
    said = hello(port("eth0", "a"), Wires().end("gpu001/eth0", 1, 2).report("gpu001/eth0"))
    before = history.accept(tick(0, hellos={"gpu001": said}))
    assert history.accept(tick(1)).connections is before.connections


def test_a_hello_that_leaves_queue_pairs_alike_keeps_them_joined() -> None:
    before, same, moved = moments(
        Wires().end("gpu001/eth0", 1, 2),
        Wires().end("gpu001/eth0", 1, 2),
        Wires().end("gpu001/eth0", 1, 3),
    )
    assert same.connections is before.connections
    assert moved.connections is not before.connections


def test_many_queue_pairs_are_not_joined_by_who_has_just_a_tick() -> None:
    history = History([Host(name="gpu001")])
    nics = tuple(f"eth{number}" for number in range(6))

    def heard(second: int, count: int) -> Connections:
        wires = Wires()
        for nic in nics:
            for number in range(count):
                wires.end(f"gpu001/{nic}", number, number + 1)
        said = hello(
            *(port(nic, nic) for nic in nics), *(wires.report(f"gpu001/{nic}") for nic in nics)
        )
        return history.accept(tick(second, hellos={"gpu001": said})).connections

    many = heard(0, 3000)
    assert many.flows_if_quick is None
    assert len(many.flows) == 18_000
    assert many.flows_if_quick is None, "what is found must not depend on who has looked"
    few = heard(1, 2)
    assert few.flows_if_quick is few.flows


def test_only_another_cable_is_another_fabric() -> None:
    history = History([Host(name="gpu001"), Host(name="leaf1", role="switch")])
    wires = Wires().end("gpu001/eth0", 1, 2)

    def accept(seq: int, *objects: Any) -> int:
        block = hello(port("eth0", "a"), *objects)
        pairs = hello(wires.report("gpu001/eth0")).blocks[0]
        whole = Hello(
            **{
                **{name: getattr(block, name) for name in block.__struct_fields__},
                "blocks": (*block.blocks, type(pairs)("qps", 10, pairs.objects)),
            }
        )
        return history.accept(tick(seq, hellos={"gpu001": whole})).fabric.version

    version = accept(0)
    wires.end("gpu001/eth0", 3, 4)
    assert accept(1) == version
    assert accept(2, neighbour("eth0", "b")) > version


def spoiled(**info: Any) -> Hello:
    pairs = Wires().end("gpu001/eth0", 1, 2).report("gpu001/eth0")
    return hello(port("eth0", "a"), pairs._replace(info={**pairs.info, **info}))


@pytest.mark.parametrize(
    "info",
    [
        {"lqpn": [1, 2]},
        {"lqpn": [1 << 24]},
        {"rqpn": [-1]},
        {"rqpn": ["2"]},
        {"process": [1]},
        {"port": None},
        {"count": "many"},
        {"processes": {"comm": "x"}},
        {key: list(range(4097)) for key in ("lqpn", "rqpn", "sq_psn", "rq_psn")},
    ],
)
def test_queue_pairs_that_cannot_be_are_refused_with_their_place(info: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="netdev: qps/eth0: info: "):
        HelloLimits(HOSTS[0]).admit(spoiled(**info))


def test_a_node_may_report_so_many_and_no_more() -> None:
    def hello_of(ports: int) -> Hello:
        wires = Wires()
        for name in range(ports):
            for number in range(2048):
                wires.end(f"gpu001/eth{name}", number, number + 1)
        return hello(*(wires.report(f"gpu001/eth{name}") for name in range(ports)))

    HelloLimits(HOSTS[0]).admit(hello_of(2))
    with pytest.raises(WireError, match="6144 queue pairs of one node, 4096 at most"):
        HelloLimits(HOSTS[0]).admit(hello_of(3))


def test_what_slips_through_costs_the_node_that_said_it() -> None:
    history = History(HOSTS)
    fine = hello(port("eth0", "b"), Wires().end("gpu002/eth0", 5, 6).report("gpu002/eth0"))
    snapshot = history.accept(tick(0, hellos={"gpu001": spoiled(lqpn=[1, 2]), "gpu002": fine}))
    assert snapshot.connections.flows.lqpn.tolist() == [5]
    assert isinstance(snapshot.connections, Connections)
