"""sFlow: what the receiver sums, and what a real switch sends."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from fabmon.fabric.fabric_builder import PortRows, build
from fabmon.fabric.flows.sampled import (
    FlowKey,
    FlowSamples,
    SampledFlow,
    SampledTraffic,
    relative_error_percent,
)
from fabmon.fabric.model import SWITCH, Host
from fabmon.fabric.wire.messages import Hello
from fabmon.feeds.errors import Unreachable
from fabmon.feeds.live import LiveFeed
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.sflow.receiver import SflowReceiver, parse_listen_address
from fabmon.feeds.transports import sflow as sflow_transport
from fabmon.feeds.transports.sflow import SflowPoller, SflowTransport
from fabmon.session.errors import UsageError
from fabmon.session.session import Session
from tests.fixtures import sflow
from tests.fixtures.in_namespace import ROOT, can_have_one
from tests.requirements import need, need_command
from tests.unit.feeds.fakes import FakeClock
from tests.unit.feeds.session_reading import read_messages, values_of
from tests.unit.feeds.sflow_in_namespace import FRAMES, SAMPLING, SPORTS

A, B = "10.1.0.1", "10.1.9.2"
ROCE = FlowKey(A, B, 17, 49_153, 4791, 0x1A2B)


class Rig:
    """A receiver with a clock of the test, fed by hand."""

    def __init__(self, *hosts: Host) -> None:
        self.clock = FakeClock()
        self.receiver = SflowReceiver("127.0.0.1:0", hosts, self.clock)

    def send(self, data: bytes) -> None:
        self.receiver.datagram_received(data, ("10.0.0.1", 5))


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.receiver.close()


def roce_sample(
    sport: int = 49_153,
    size: int = 1000,
    source: int = 17,
    input_port: int = 17,
    rate: int = 1000,
) -> bytes:
    packet = sflow.roce(A, B, sport, 0x1A2B)
    header = sflow.raw_header(packet, size)
    return sflow.flow_sample(header, source=source, rate=rate, input_port=input_port)


def test_flows_are_summed_by_port_and_way_for_ten_seconds(rig: Rig) -> None:
    for number in range(1, 11):
        rig.send(sflow.datagram(roce_sample(), roce_sample(), sequence=number))
    rig.clock.suspend(5)
    assert rig.receiver.take() == ()
    rig.clock.suspend(5)
    (batch,) = rig.receiver.take()
    assert (batch.agent, batch.seconds, batch.rate, batch.lost) == (sflow.AGENT, 10, 1000, 0)
    assert [(f.if_index, f.way, f.flow, f.samples, f.bytes) for f in batch.flows] == [
        (17, "rx", ROCE, 20, 20 * 1000 * 1000),
        (3, "tx", ROCE, 20, 20 * 1000 * 1000),
    ]
    rig.clock.suspend(10)
    assert rig.receiver.take() == (), "nothing is repeated"


def test_the_time_in_which_nothing_was_sampled_counts_too(rig: Rig) -> None:
    """Else a switch that is quiet for 10 of 20 s would show twice the rates that it has."""
    rig.send(sflow.datagram(roce_sample(), sequence=1))
    rig.clock.suspend(10)
    assert [each.seconds for each in rig.receiver.take()] == [10]
    rig.clock.suspend(10)
    assert rig.receiver.take() == ()
    rig.send(sflow.datagram(roce_sample(), sequence=2))
    rig.clock.suspend(10)
    assert [each.seconds for each in rig.receiver.take()] == [20]


def test_lost_datagrams_are_corrected_for(rig: Rig) -> None:
    for number in range(1, 101):
        if number % 4:
            rig.send(sflow.datagram(roce_sample(), sequence=number))
    rig.clock.suspend(10)
    (batch,) = rig.receiver.take()
    assert batch.lost == pytest.approx(0.25, abs=0.01)
    assert batch.flows[0].bytes == pytest.approx(100 * 10**6, rel=0.02)
    assert batch.flows[0].samples == 75


def test_datagrams_that_overtake_each_other_and_restarts_are_no_loss(rig: Rig) -> None:
    for number in (1, 3, 2, 4, 6, 5, 7, 1, 2):
        rig.send(sflow.datagram(roce_sample(), sequence=number if number else 0))
    rig.clock.suspend(10)
    assert rig.receiver.take()[0].lost == 0


def test_a_late_datagram_does_not_overwrite_newer_counters() -> None:
    made = Rig(Host(name="leaf1", address=sflow.AGENT, via="sflow", role=SWITCH))
    made.receiver._node_of[sflow.AGENT] = "leaf1"

    def counted(rx: int, sequence: int, uptime_ms: int) -> int | None:
        sample = sflow.counter_sample(sflow.if_counters(17, rx, 5))
        made.send(sflow.datagram(sample, sequence=sequence, uptime_ms=uptime_ms))
        return (made.receiver.counters("leaf1") or {})[17][0].rx_bytes

    try:
        end = 2**32
        assert counted(100, end - 2, end - 2000) == 100
        assert counted(300, 0, 1000) == 300, "the number and the uptime wrap"
        assert counted(200, end - 1, end - 1000) == 300, "late"
        assert counted(300, 0, 1000) == 300, "twice"
        assert counted(400, 1, 2000) == 400
        for number in range(2, 60):
            counted(1000 + number, number, 2000 + 1000 * number)
        assert counted(7, 1, 500) == 7, "the agent restarted"
    finally:
        made.receiver.close()


def test_the_interval_of_counters_is_measured_and_a_lost_datagram_does_not_change_it() -> None:
    made = Rig(Host(name="leaf1", address=sflow.AGENT, via="sflow", role=SWITCH))
    made.receiver._node_of[sflow.AGENT] = "leaf1"
    sent = 0

    def counted(after_s: float) -> int:
        nonlocal sent
        sent += 1
        made.clock.suspend(after_s)
        ports = [sflow.counter_sample(sflow.if_counters(port, sent, 5)) for port in (17, 18)]
        uptime_ms = round(made.clock.monotonic() * 1000)
        made.send(sflow.datagram(*ports, sequence=sent, uptime_ms=uptime_ms))
        return made.receiver.interval_s("leaf1")

    try:
        assert made.receiver.interval_s("leaf1") == 0, "no agent"
        assert counted(1) == 0, "not known of the first counters"
        assert [counted(each) for each in (17.1, 16.8, 34.2, 17.3, 16.9)] == [17] * 5
        assert [counted(5) for _ in range(15)][-1] == 5, "the switch was configured anew"
    finally:
        made.receiver.close()


def test_what_is_dropped_is_logged_once_and_once_when_it_has_ended(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        rig.send(b"no sFlow")
    rig.clock.suspend(50)
    rig.receiver.take()
    assert ["such datagrams are dropped" in line for line in caplog.messages] == [True]
    rig.clock.suspend(20)
    rig.receiver.take()
    rig.clock.suspend(20)
    rig.receiver.take()
    assert caplog.messages[1:] == ["sFlow: no invalid datagram for 60 s; 3 datagrams were dropped"]
    rig.send(b"no sFlow")
    assert len(caplog.messages) == 3, "it begins again"


def test_the_socket_is_closed_where_the_feed_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[SflowReceiver] = []

    def transports(hosts: Any, settings: Any, ssh_config: Any, receiver: Any) -> Any:
        made.append(receiver)
        raise ValueError("no")

    monkeypatch.setattr("fabmon.feeds.live.Transports", transports)
    with pytest.raises(ValueError, match="no"):
        LiveFeed([Host(name="leaf1")], sflow="127.0.0.1:0")
    assert made[0]._socket.fileno() == -1


def test_a_port_that_samples_what_it_sends_is_not_counted_twice(rig: Rig) -> None:
    egress = roce_sample(source=3)
    rig.send(sflow.datagram(egress))
    for _ in range(10):
        rig.send(sflow.datagram(egress, roce_sample()))
    rig.clock.suspend(10)
    (batch,) = rig.receiver.take()
    counted = {(flow.if_index, flow.way): flow.samples for flow in batch.flows}
    assert counted == {(3, "tx"): 11, (17, "rx"): 10}


def test_small_flows_and_packets_without_ip_are_others(rig: Rig) -> None:
    for number in range(30):
        rig.send(sflow.datagram(*[roce_sample(sport=number)] * (30 - number), sequence=number))
    arp = sflow.flow_sample(sflow.raw_header(sflow.ethernet(bytes(30), 0x0806), 64))
    rig.send(sflow.datagram(arp, sequence=30))
    rig.clock.suspend(10)
    (batch,) = rig.receiver.take()
    assert len(batch.flows) == 24, "twelve of each port and way"
    samples = sum(flow.samples for flow in batch.flows if flow.way == "rx")
    (others,) = (other for other in batch.others if other[1] == "rx")
    assert samples + others[2] == sum(range(1, 31)) + 1


def test_a_flood_is_bounded_and_read_in_part(rig: Rig) -> None:
    for number in range(4000):
        agent = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        rig.send(sflow.datagram(*[roce_sample(sport=number)] * 5, agent=agent))
    assert rig.receiver.dropped > 1000
    for number in range(60):
        rig.clock.suspend(1.1)
        samples = [
            roce_sample(sport=dice, input_port=number % 100 + 1, rate=2**32 - 1, size=2**32 - 1)
            for dice in range(400)
        ]
        rig.send(sflow.datagram(*samples, sequence=number))
    assert len(rig.receiver._agents) <= 4096
    assert all(len(agent.counts) < 20_000 for agent in rig.receiver._agents.values())
    batches = rig.receiver.take()
    assert all(len(batch.flows) <= 512 for batch in batches)
    assert all(flow.bytes < 2**62 for batch in batches for flow in batch.flows)


def test_an_agent_that_floods_does_not_silence_the_others(rig: Rig) -> None:
    for number in range(2000):
        rig.send(sflow.datagram(*[roce_sample()] * 10, sequence=number, agent="10.6.6.6"))
    rig.send(sflow.datagram(roce_sample()))
    rig.clock.suspend(10)
    flooding, quiet = sorted(rig.receiver.take(), key=lambda batch: -batch.flows[0].samples)
    assert flooding.flows[0].samples < 3000
    assert (quiet.agent, quiet.flows[0].samples) == (sflow.AGENT, 1)


def test_what_is_made_of_forged_numbers_is_what_a_recording_holds(rig: Rig) -> None:
    """60 flows of the largest packets, with the largest gaps between datagrams, were more bytes
    than a record holds: it was lost, with all else of that tick."""
    for number in range(1, 12_001):
        sample = roce_sample(49_153 + number % 60, size=2**32 - 1, rate=2**32 - 1)
        rig.send(sflow.datagram(sample, sequence=9_999 * number))
        if number % 1_200 == 0:
            rig.clock.suspend(1)
    (batch,) = rig.receiver.take()
    assert batch.lost == 0.9999
    assert msgspec.convert(msgspec.to_builtins(batch), FlowSamples) == batch


def test_samples_of_thousands_of_forged_interfaces_are_listed_at_once() -> None:
    """For each interface all samples of the agent were gone through: 12,000 took 9 s."""
    others = tuple((index, "rx", 1, 1000) for index in range(12_000))
    flow = SampledFlow(7, "rx", ROCE, 5, 5000)
    batches = [FlowSamples(sflow.AGENT, 10.0, 1000, (flow,), others)] * 3
    began_s = time.thread_time()
    found = SampledTraffic(build([], {}, PortRows(), 1), {}, {sflow.AGENT: batches}).interfaces()
    assert time.thread_time() - began_s < 1
    assert len(found) == 12_000
    (seventh,) = (each.samples.flows for each in found if each.if_index == 7)
    assert [(each.flow, each.bps, each.samples) for each in seventh] == [
        (ROCE, 4000.0, 15), (None, 800.0, 3)
    ]  # fmt: skip


async def test_interfaces_that_are_left_out_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabmon.feeds.sflow.receiver.MOST_PORTS", 2)
    host = Host(name="leaf1", address=sflow.AGENT, via="sflow", role=SWITCH)
    receiver = SflowReceiver("127.0.0.1:0", [host])
    await receiver.run()
    poller = SflowPoller(receiver, host, 1.0)
    try:
        said = []
        for number in (1, 2, 3):
            ports = sflow.counter_sample(sflow.if_counters(number, 1, 1))
            receiver.datagram_received(sflow.datagram(ports, sequence=number), None)
            reading = await poller.poll()
            said.append([text for block in reading.blocks for text in block.limits])
        assert said == [[], [], ["more than 2,048 interfaces: the others are not read"]]
    finally:
        receiver.close()


async def test_what_was_forged_in_the_name_of_an_agent_is_gone_some_minutes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its ports, and that there are too many, were shown for as long as fabmon ran."""
    monkeypatch.setattr("fabmon.feeds.sflow.receiver.MOST_PORTS", 2)
    rig = Rig(Host(name="leaf1", address=sflow.AGENT, via="sflow", role=SWITCH))

    def send(*ports: int) -> None:
        counters = [sflow.counter_sample(sflow.if_counters(port, 1, 1)) for port in ports]
        rig.send(sflow.datagram(*counters))

    try:
        await rig.receiver.run()
        rig.send(sflow.datagram(roce_sample(source=3)))
        send(90, 91, 92)
        assert rig.receiver.has_left_out("leaf1")
        for _ in range(122):
            send(7)
            rig.send(sflow.datagram(roce_sample()))
            rig.clock.suspend(10)
            rig.receiver.take()
        assert not rig.receiver.has_left_out("leaf1")
        send(7)
        assert list(rig.receiver.counters("leaf1") or ()) == [7]
        rig.send(sflow.datagram(roce_sample()))
        rig.clock.suspend(10)
        flows = [flow for batch in rig.receiver.take() for flow in batch.flows]
        assert [(flow.if_index, flow.way) for flow in flows] == [(17, "rx"), (3, "tx")]
    finally:
        rig.receiver.close()


async def test_agents_that_are_no_nodes_keep_no_counters_and_are_forgotten() -> None:
    rig = Rig(Host(name="leaf1", address=sflow.AGENT, via="sflow", role=SWITCH))
    try:
        await rig.receiver.run()
        for number in range(4200):
            agent = f"10.9.{number >> 8}.{number & 255}"
            ports = sflow.counter_sample(sflow.if_counters(1, 1, 1))
            rig.send(sflow.datagram(ports, agent=agent))
            rig.clock.suspend(0.001)
        assert all(not each.counters for each in rig.receiver._agents.values())
        name = sflow.port_name("x" * 60_000)
        rig.send(sflow.datagram(sflow.counter_sample(sflow.if_counters(17, 1, 1), name)))
        (known,) = (rig.receiver.counters("leaf1") or {}).values()
        assert len(known[0].name) == 255, "a node is taken though strangers filled the table"
        rig.clock.suspend(100)
        rig.receiver.take()
        assert list(rig.receiver._agents) == [sflow.AGENT]
    finally:
        rig.receiver.close()


def test_records_that_are_skipped_count_towards_the_limit(rig: Rig) -> None:
    empty = b"".join(sflow.record(99, b"") for _ in range(500))
    sample = sflow.record(4, struct.pack(">4I", 1, 0, 17, 500) + empty)
    for number in range(1000):
        rig.send(sflow.datagram(*[sample] * 15, sequence=number))
    assert rig.receiver.dropped > 900


def test_what_is_no_sflow_costs_only_itself(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for data in (b"", b"hello", bytes(1400), sflow.whole(A, B)[:-1]):
        for _ in range(50):
            rig.send(data)
    rig.send(sflow.whole(A, B))
    assert rig.receiver.invalid == 200
    rig.clock.suspend(10)
    assert len(rig.receiver.take()) == 1
    assert len(caplog.records) <= 2, "said once, not 200 times"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (":6343", ("0.0.0.0", 6343)),
        ("6343", ("0.0.0.0", 6343)),
        ("10.0.0.1:99", ("10.0.0.1", 99)),
        ("10.0.0.1", ("10.0.0.1", 6343)),
        ("[::]:6343", ("::", 6343)),
    ],
)
def test_an_address_to_listen_on(text: str, found: tuple[str, int]) -> None:
    assert parse_listen_address(text) == found


@pytest.mark.parametrize("text", ["", ":", ":99999", "host:6343", "10.0.0.1:x", ":-1"])
def test_a_wrong_address_says_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="as in :6343"):
        parse_listen_address(text)


async def test_a_port_in_use_is_a_clear_error() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(UsageError, match="Address already in use; --sflow selects another"):
            Session.load(None).live_feed([Host(name="a", via="exec", command="true")], 1.0, where)


def test_the_error_of_an_estimate() -> None:
    assert relative_error_percent(10_000) == pytest.approx(1.96)
    assert relative_error_percent(1) == 196


@pytest.fixture
def udp() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        yield made


async def test_counters_over_a_real_socket_become_the_ports_of_a_node(
    udp: socket.socket,
) -> None:
    host = Host(name="leaf1", address=sflow.AGENT, via="sflow", role=SWITCH)
    receiver = SflowReceiver("127.0.0.1:0", [host])
    await receiver.run()
    transport = SflowTransport(ProbeSettings(interval_s=0.1), receiver)
    session = await transport.open(host)

    def send(number: int, rx: int) -> None:
        ports = [
            sflow.counter_sample(sflow.if_counters(17, rx, 2 * rx), sflow.port_name("Ethernet17")),
            sflow.counter_sample(sflow.if_counters(18, 5, 6, up=False)),
        ]
        made = sflow.datagram(*ports, sequence=number, uptime_ms=1000 * number)
        udp.sendto(made, ("127.0.0.1", receiver.port))

    send(1, 10**9)
    try:
        hello, frame = await read_messages(session, 1)
        values = values_of(hello, frame, "Ethernet17")  # type: ignore[arg-type]
        assert values["phy_rx_bytes"] == 10**9
        assert values["netdev_up"] == 1
        assert values["phy_rx_packets"] == 13
        assert values_of(hello, frame, "if18")["netdev_up"] == 0  # type: ignore[arg-type]
        infos = {item.id: item.info for block in hello.blocks for item in block.objects}  # type: ignore[union-attr]
        assert infos["Ethernet17"]["ifindex"] == 17
        assert infos["Ethernet17"]["counters"] == "sent at an interval not known yet"
        clock = frame.blocks[0][0]  # type: ignore[union-attr, index]
        await asyncio.sleep(1)
        send(2, 2 * 10**9)
        while True:
            *said, frame = await read_messages(session, 1)
            hello = next((each for each in said if isinstance(each, Hello)), hello)
            if frame.blocks[0] is not None:  # type: ignore[union-attr]
                break
        assert isinstance(hello, Hello)
        block, other, *_ = hello.blocks
        assert [each.objects[0].info["counters"] for each in (block, other)] == ["every 1 s"] * 2
        assert block.every == 10, "the ticks of 0.1 s from one sample to the next"
        step_ns = frame.blocks[0][0] - clock  # type: ignore[union-attr, index, operator]
        assert step_ns == 10**9, "by the agent's own clock"
    finally:
        receiver.close()


async def test_a_silent_agent_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sflow_transport, "_FIRST_S", 0.2)
    host = Host(name="leaf1", address="10.9.9.9", via="sflow", role=SWITCH)
    receiver = SflowReceiver("127.0.0.1:0", [host])
    await receiver.run()
    session = await SflowTransport(ProbeSettings(interval_s=0.1), receiver).open(host)
    with pytest.raises(Unreachable, match=r"no sFlow from agent 10\.9\.9\.9 on port \d+"):
        await asyncio.wait_for(session.readline(), 240)
    receiver.close()


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a real Open vSwitch sent, as fabmon, pmacct and the kernel count it."""
    for command, package in (
        ("ovs-vsctl", "openvswitch-switch"),
        ("ovsdb-tool", "openvswitch-switch"),
        ("sfacctd", "pmacct"),
    ):
        need_command(command, package)
    need("a network namespace with a veth", can_have_one(), "run as root")
    directory = tmp_path_factory.mktemp("ovs")
    program = [sys.executable, "-m", "tests.unit.feeds.sflow_in_namespace", str(directory)]
    done = subprocess.run(
        ["unshare", "--net", "--mount", *program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_open_vswitch_is_read_as_pmacct_reads_it(switch: dict[str, Any]) -> None:
    index = switch["index"]
    packets: Counter[str] = Counter()
    for key, (samples, _, qp) in switch["flows"].items():
        _, way, sport = key.split()
        packets[sport] += samples * SAMPLING * (way == "rx")
        assert qp == 0x100 + SPORTS.index(int(sport)), "the queue pair of the header"
    assert dict(packets) == switch["pmacct"]
    for sport in SPORTS:
        received = switch["flows"][f"{index['s1']} rx {sport}"]
        assert received == switch["flows"][f"{index['s2']} tx {sport}"]


def test_the_estimate_is_within_its_error(switch: dict[str, Any]) -> None:
    """Three times the error that is shown: one run in a million is outside by chance."""
    assert switch["rate"] == SAMPLING
    frame_bytes = switch["frame_bytes"] + 4  # the checksum is on the wire, too
    for sport in SPORTS:
        samples, size, _ = switch["flows"][f"{switch['index']['s1']} rx {sport}"]
        error = relative_error_percent(samples) / 100
        sent = FRAMES // len(SPORTS) * frame_bytes
        assert size == pytest.approx(sent, rel=2.5 * error)


def test_a_switch_that_only_sends_sflow_is_a_node_with_its_counters(switch: dict[str, Any]) -> None:
    assert switch["state"] == "up"
    assert switch["up"] == 1
    assert switch["unmatched"] == []
    assert switch["counted"] == switch["kernel"] >= FRAMES * switch["frame_bytes"]
    assert {sport for sport, *_ in switch["shown"]} <= {*SPORTS, 0}
    assert all(error < 60 for _, _, error in switch["shown"])
    listed = [tuple(each) for each in switch["listed"]]
    assert {("leaf1/s1", "rx", SAMPLING), ("leaf1/s2", "tx", SAMPLING)} <= {*listed}
    assert switch["interval"] == "every 1 s", "as the switch is configured"
