"""gNMI: devices that stream OpenConfig, against a server of the same published protos."""

# ruff: noqa: E402 - what is missing is said before it is imported

from __future__ import annotations

import asyncio
import gc
import json
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.requirements import need_package

need_package("grpc")
need_package("pygnmi")

from pygnmi.spec.v080 import gnmi_pb2

from fabmon.fabric.model import SWITCH, Host
from fabmon.fabric.wire.messages import Frame, Hello, Message, Notice, decode
from fabmon.feeds.errors import (
    BadSecret,
    BadTrust,
    LoginRefused,
    Misbehaved,
    NodeError,
    Unreachable,
)
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.token_bucket import CPU_BURST_S, CPU_SHARE, TokenBucket
from fabmon.feeds.transports import gnmi as gnmi_transport
from fabmon.feeds.transports import openconfig, received_bytes
from fabmon.feeds.transports.gnmi import GnmiPoller, GnmiTransport
from fabmon.feeds.transports.gnmi_client import GnmiClient, usual_encoding
from fabmon.feeds.transports.openconfig import (
    GnmiValues,
    Leaf,
    json_value,
    leaves,
    queue_number,
    speed,
)
from fabmon.feeds.transports.polled import PolledSession
from fabmon.feeds.transports.received_bytes import Connections, ReceivedBytes
from fabmon.feeds.transports.transport import ProbeSession
from tests.fixtures import gnmi
from tests.fixtures.gnmi import Device
from tests.unit.feeds.certificates import self_made

PORT, OTHER = "Ethernet1/1", "Ethernet2/1"
HOST = Host(name="leaf1", address="127.0.0.1", via="gnmi", role=SWITCH, tls="no")


@pytest.fixture
def device() -> Device:
    made = Device()
    made.port("Ethernet1/1", 10**12, 2 * 10**12, index=1001)
    made.port("Ethernet2/1", 5, 6, is_up=False, index=2001)
    made.queue("Ethernet1/1", "UC3", 10**9, 42)
    made.neighbour("Ethernet1/1", "spine1", "Ethernet9/1")
    return made


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gnmi_transport, "_FIRST_S", 10.0)


class Served:
    """A device that is served, and sessions with it."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.transport = GnmiTransport(ProbeSettings(interval_s=0.1))
        self.sessions: list[ProbeSession] = []
        self.server: Any = None
        self.port = 0

    async def start(self, tls: tuple[bytes, bytes] | None = None) -> None:
        self.server, self.port = await gnmi.serve(self.device, tls)

    async def session(self, **fields: Any) -> ProbeSession:
        host = msgspec.structs.replace(HOST, **{"port": self.port, **fields})
        session = await self.transport.open(host)
        self.sessions.append(session)
        return session

    async def close(self) -> None:
        for session in self.sessions:
            await session.close()
        if self.server is not None:
            await self.server.stop(None)


@pytest.fixture
async def served(device: Device) -> AsyncIterator[Served]:
    made = Served(device)
    yield made
    await made.close()


class Heard:
    """What a session has said so far: the last hello, the last values of each port, notices."""

    def __init__(self, session: ProbeSession) -> None:
        self._session = session
        self.hello: Hello | None = None
        self.values: dict[str, dict[str, int]] = {}
        self.clocks: dict[tuple[str, str], list[int]] = {}
        self.notices: list[Notice] = []

    async def until(self, holds: Callable[[Heard], bool]) -> Heard:
        """Read on until something holds."""
        async with asyncio.timeout(240):
            while not holds(self):
                self._take(decode(await self._session.readline()))
        return self

    def _take(self, message: Message) -> None:
        if isinstance(message, Hello):
            self.hello = message
        elif isinstance(message, Notice):
            self.notices.append(message)
        elif isinstance(message, Frame) and self.hello is not None:
            for info, block in zip(self.hello.blocks, message.blocks, strict=True):
                for item in info.objects if block is not None and info.objects[0].port else ():
                    known = zip(item.metrics, block[1:], strict=True)  # type: ignore[index]
                    self.values.setdefault(item.id, {}).update(known)
                    clocks = self.clocks.setdefault((info.source, item.id), [])
                    clocks.append(block[0])  # type: ignore[index, arg-type]

    @property
    def infos(self) -> dict[str, dict[str, Any]]:
        """The facts of every object."""
        blocks = self.hello.blocks if self.hello is not None else ()
        return {item.id: item.info for block in blocks for item in block.objects}


async def heard(session: ProbeSession, *metrics: str) -> Heard:
    """A session that has said some metrics of the first port."""
    found = Heard(session)
    return await found.until(lambda said: set(metrics) <= set(said.values.get(PORT, {})))


@pytest.mark.parametrize("encoding", ["JSON_IETF", "PROTO", "JSON"])
async def test_interfaces_queues_and_neighbours_become_ports(served: Served, encoding: str) -> None:
    served.device.encodings = [encoding]
    await served.start()
    session = await served.session()
    expected = {
        "phy_rx_bytes": 10**12,
        "phy_tx_bytes": 2 * 10**12,
        "phy_rx_discards": 7,
        "phy_rx_crc_errors": 3,
        "netdev_carrier_changes": 2,
        "pause_rx_frames": 11,
        "netdev_up": 1,
        "netdev_speed_bps": 400 * 10**9,
        "queue3_tx_bytes": 10**9,
        "queue3_tx_drops": 5,
        "queue3_tx_ecn_marked": 42,
    }
    said = await heard(session, *expected)
    await said.until(
        lambda said: "Ethernet1/1/1" in said.infos and "netdev_up" in said.values.get(OTHER, {})
    )
    assert said.values[PORT] == expected
    assert said.values[OTHER]["netdev_up"] == 0
    assert said.infos[PORT]["ifindex"] == 1001, "as sFlow names it"
    assert said.infos["Ethernet1/1/1"] == {
        "dev": "Ethernet1/1",
        "peer_node": "spine1",
        "peer_port": "Ethernet9/1",
    }


async def test_counters_are_sampled_and_states_are_on_change(served: Served) -> None:
    await served.start()
    session = await served.session()
    said = await heard(session, "phy_rx_bytes", "netdev_up", "queue3_tx_bytes")
    await said.until(lambda said: "Ethernet1/1/1" in said.infos)
    modes = {}
    for request in served.device.requests:
        (mode,) = {each.mode for each in request.subscribe.subscription}
        (sample,) = {each.sample_interval for each in request.subscribe.subscription}
        modes[request.subscribe.subscription[0].path.elem[0].name, mode] = sample
    assert modes == {
        ("interfaces", 2): 5 * 10**9,
        ("interfaces", 1): 0,
        ("qos", 2): 10 * 10**9,
        ("lldp", 1): 0,
    }


async def test_a_change_of_state_and_of_counters_is_in_a_later_frame(served: Served) -> None:
    await served.start()
    session = await served.session()
    said = await heard(session, "phy_rx_bytes", "netdev_up")
    served.device.port(PORT, 10**12 + 1000, 2 * 10**12, is_up=False, index=1001)
    await said.until(
        lambda said: (
            said.values[PORT]["phy_rx_bytes"] == 10**12 + 1000
            and not said.values[PORT]["netdev_up"]
        )
    )
    clocks = said.clocks["gnmi", PORT]
    assert clocks == sorted(set(clocks)), "by the device's own time, none twice"


async def test_a_path_that_a_device_lacks_loses_its_own_source(served: Served) -> None:
    served.device.unsupported = ("qos", "lldp")
    await served.start()
    session = await served.session()
    said = await heard(session, "phy_rx_bytes", "netdev_up")
    await said.until(lambda said: len({each.source for each in said.notices}) == 2)
    assert {(each.source, each.reason) for each in said.notices} == {
        ("gnmi_queues", "unsupported"),
        ("lldp", "unsupported"),
    }
    assert "no such path: /qos" in " ".join(each.text for each in said.notices)


async def test_a_subscription_that_ended_is_not_shown_and_begins_again(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gnmi_transport, "_PAUSE_S", 0.3)
    await served.start()
    session = await served.session()
    said = await heard(session, "phy_rx_bytes", "netdev_up")
    served.device.ends_on_change = True
    await said.until(lambda said: {each.source for each in said.notices} >= {"gnmi_state"})
    await said.until(lambda said: "gnmi_state" not in {b.source for b in said.hello.blocks})  # type: ignore[union-attr]
    served.device.ends_on_change = False
    said.values.clear()
    await said.until(lambda said: "netdev_up" in said.values.get(PORT, {}))


async def test_counters_that_ended_after_a_while_begin_again_in_the_same_session(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a device ends each subscription after an hour."""
    monkeypatch.setattr(gnmi_transport, "_PAUSE_S", 0.3)
    monkeypatch.setattr(gnmi_transport, "_LASTED_S", 0.0)
    await served.start()
    session = await served.session()
    said = await heard(session, "phy_rx_bytes")
    served.device.ends = True
    await said.until(lambda said: "gnmi" in {each.source for each in said.notices})
    served.device.ends = False
    said.values.clear()
    await said.until(lambda said: "phy_rx_bytes" in said.values.get(PORT, {}))


async def test_counters_that_end_at_once_end_the_session(served: Served) -> None:
    served.device.ends = True
    await served.start()
    with pytest.raises(Unreachable, match="ended the subscription"):
        await heard(await served.session(), "phy_rx_bytes")


async def test_what_is_refused_on_change_is_sampled(served: Served) -> None:
    served.device.refused_modes = ("ON_CHANGE",)
    await served.start()
    session = await served.session()
    said = await heard(session, "phy_rx_bytes", "netdev_up")
    await said.until(lambda said: "Ethernet1/1/1" in said.infos)
    assert not said.notices
    asked = {
        each.path.elem[0].name: (each.mode, each.sample_interval)
        for request in served.device.requests
        for each in request.subscribe.subscription
        if each.path.elem[-1].name != "counters"
    }
    assert asked["interfaces"] == (2, 10 * 10**9)
    assert asked["lldp"] == (2, 30 * 10**9)


async def test_an_interval_that_is_refused_becomes_a_longer_one(served: Served) -> None:
    served.device.shortest_s = 30.0
    await served.start()
    said = await heard(await served.session(), "phy_rx_bytes", "queue3_tx_bytes")
    every = {block.source: block.every for block in said.hello.blocks}  # type: ignore[union-attr]
    assert (every["gnmi"], every["gnmi_queues"]) == (300, 300), "30 s at an interval of 0.1 s"


async def test_without_a_time_of_the_device_that_of_the_arrival_counts(served: Served) -> None:
    served.device.has_no_times = True
    began_ns = time.monotonic_ns()
    await served.start()
    said = await heard(await served.session(), "phy_rx_bytes")
    clocks = said.clocks["gnmi", PORT]
    await said.until(lambda _: len(clocks) >= 5 and clocks[-1] - clocks[0] > 0.5e9)
    assert clocks == sorted(clocks)
    assert clocks[-1] - clocks[0] < time.monotonic_ns() - began_ns


def test_a_neighbour_that_is_no_longer_sampled_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = GnmiValues(1.0)
    made.sample_s["lldp"] = 30.0
    made.add(Leaf("lldp", PORT, "system-name", "spine1", "1"), 1)
    assert [block.source for block in made.blocks()] == ["lldp"]
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 91)
    assert made.blocks() == []


def test_a_clock_that_is_set_back_is_followed() -> None:
    made = GnmiValues(1.0)
    hour_ns = 3600 * 10**9
    made.add(Leaf("gnmi", PORT, "phy_rx_bytes", 1), 10 * hour_ns)
    made.add(Leaf("gnmi", PORT, "phy_tx_bytes", 1), 10 * hour_ns)
    assert made._ports[PORT].stamps_ns["gnmi"] == 10 * hour_ns + 1
    made.add(Leaf("gnmi", PORT, "phy_rx_bytes", 2), 9 * hour_ns)
    assert made._ports[PORT].stamps_ns["gnmi"] == 9 * hour_ns


def test_texts_of_a_device_are_bounded_and_a_flood_of_unknown_leaves_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 5.0)  # All of it is of one second.
    made = GnmiValues(1.0)
    made.add(Leaf("gnmi_state", PORT, "type", "x" * 10**6), 1)
    made.add(Leaf("gnmi_state", "x" * 10**6, "netdev_up", 1), 1)
    made.add(Leaf("lldp", PORT, "system-name", "x" * 10**6, "1"), 1)
    assert list(made._ports) == [PORT]
    assert len(str(made._ports[PORT].facts["type"])) == 256
    assert len(made._neighbours[PORT, "1"].facts["system-name"]) == 256
    document = b'{"unknown":"' + b"x" * 5_000_000 + b'"}'
    typed = gnmi_pb2.TypedValue(json_ietf_val=document)
    update = gnmi_pb2.Update(path=gnmi_pb2.Path(), val=typed)
    notification = gnmi_pb2.Notification(update=[update])
    reply = response(notification)
    poller = GnmiPoller(GnmiClient(None, []), 1.0, budget())
    poller._take(reply)
    with pytest.raises(Misbehaved, match="8 MiB a second"):
        poller._take(reply)
    many = json.dumps({str(number): 0 for number in range(100_001)}).encode()
    update = gnmi_pb2.Update(path=gnmi_pb2.Path(), val=gnmi_pb2.TypedValue(json_ietf_val=many))
    reply = response(gnmi_pb2.Notification(update=[update]))
    with pytest.raises(Misbehaved, match="50,000 values a second"):
        GnmiPoller(GnmiClient(None, []), 1.0, budget())._take(reply)


def response(notification: Any) -> bytes:
    return bytes(gnmi_pb2.SubscribeResponse(update=notification).SerializeToString())


def budget() -> TokenBucket:
    return TokenBucket(CPU_BURST_S, CPU_SHARE, time.monotonic())


def test_what_costs_time_and_says_nothing_counts_too() -> None:
    """Deletions and empty updates were free: 8 MiB of them took the loop 4 s, every second."""
    nothing = [gnmi_pb2.Update()] * 200_000
    gone = [gnmi_pb2.Path()] * 200_000
    for message in (gnmi_pb2.Notification(update=nothing), gnmi_pb2.Notification(delete=gone)):
        poller = GnmiPoller(GnmiClient(None, []), 1.0, budget())
        began_s = time.thread_time()
        with pytest.raises(Misbehaved, match="50,000 values a second"):
            poller._take(response(message))
        assert time.thread_time() - began_s < 0.1
    deep = gnmi_pb2.Path(elem=[gnmi_pb2.PathElem(name="a")] * 500_000)
    message = gnmi_pb2.Notification(update=[gnmi_pb2.Update(path=deep)])
    poller = GnmiPoller(GnmiClient(None, []), 1.0, budget())
    began_s = time.thread_time()
    poller._take(response(message))
    assert time.thread_time() - began_s < 0.1


def elements(*names: str, **keys: str) -> Any:
    """A path whose last element has keys."""
    made = gnmi_pb2.Path(elem=[gnmi_pb2.PathElem(name=name) for name in names])
    for key, value in keys.items():
        made.elem[-1].key[key.replace("_", "-")] = value
    return made


def below(prefix: Any) -> Any:
    """A notification of a thousand leaves below a path."""
    leaf = gnmi_pb2.Update(path=elements("transmit-octets"), val=gnmi_pb2.TypedValue(uint_val=1))
    return gnmi_pb2.Notification(prefix=prefix, update=[leaf] * 1000)


def document(text: str) -> Any:
    """A notification of one document in JSON, of all interfaces."""
    typed = gnmi_pb2.TypedValue(json_val=text.encode())
    return gnmi_pb2.Notification(update=[gnmi_pb2.Update(path=elements("interfaces"), val=typed)])


MANY = {str(number): "" for number in range(300)}
LONG_QUEUE = elements("qos", "interfaces", "interface", interface_id="x")
LONG_QUEUE.elem.extend(elements("output", "queue", name="1" * 3_000_000 + "x").elem)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(below(elements("interface", **MANY)), id="keys of a path"),
        pytest.param(below(elements("x" * 7_000_000, name="y")), id="a name of 7 MB"),
        pytest.param(below(LONG_QUEUE), id="digits of a queue"),
        pytest.param(document(json.dumps({"interface": [MANY]})), id="keys in JSON"),
        pytest.param(
            document(json.dumps({"x" * 2_500_000: [{"name": "y", **MANY}]})),
            id="a name of 2.5 MB in JSON",
        ),
    ],
)
def test_what_stands_above_many_leaves_is_not_paid_for_with_each(message: Any) -> None:
    """Each leaf was looked at with all keys and texts above it: 270 kB took the loop of the screen
    3 s, 8 MB hours."""
    poller = GnmiPoller(GnmiClient(None, []), 1.0, budget())
    began_s = time.thread_time()
    poller._take(response(message))
    assert time.thread_time() - began_s < 0.3


def test_documents_of_nothing_are_a_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    """8 MB of empty entries were no value: 2 s in the loop of the screen, and 280 MB."""
    monkeypatch.setattr("time.monotonic", lambda: 5.0)  # All of it is of one second.
    poller = GnmiPoller(GnmiClient(None, []), 1.0, budget())
    with pytest.raises(Misbehaved, match="JSON of more than 131,072 values"):
        poller._take(response(document('{"interface":[' + "{}," * 2_000_000 + "{}]}")))
    nothing = document('{"interface":[' + "{}," * 60_000 + "{}]}")
    poller._take(response(nothing))
    with pytest.raises(Misbehaved, match="50,000 values a second"):
        poller._take(response(nothing))


def test_interfaces_and_neighbours_that_are_left_out_are_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fabmon.feeds.transports.openconfig.MOST_PORTS", 2)
    monkeypatch.setattr("fabmon.feeds.transports.openconfig._MOST_NEIGHBOURS", 1)
    made = GnmiValues(1.0)
    for number in range(2):
        made.add(Leaf("gnmi", f"Ethernet{number}", "phy_rx_bytes", 1), 1)
    made.add(Leaf("lldp", "Ethernet0", "system-name", "spine1", "1"), 1)
    assert not any(block.limits for block in made.blocks())
    made.add(Leaf("gnmi", "Ethernet9", "phy_rx_bytes", 1), 1)
    made.add(Leaf("lldp", "Ethernet9", "system-name", "spine1", "1"), 1)
    assert [text for block in made.blocks() for text in block.limits] == [
        "more than 2 interfaces: the others are not read",
        "more than 4,096 LLDP neighbours: the others are not read",
    ]


def test_there_is_room_again_for_what_comes_in_place_of_what_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neighbours that are numbered anew with each change filled the table for good."""
    now_s = 1000.0
    monkeypatch.setattr("fabmon.feeds.transports.openconfig.MOST_PORTS", 2)
    monkeypatch.setattr("fabmon.feeds.transports.openconfig._MOST_NEIGHBOURS", 3)
    monkeypatch.setattr(
        openconfig,
        "time",
        SimpleNamespace(monotonic=lambda: now_s, monotonic_ns=lambda: int(now_s * 1e9)),
    )
    made = GnmiValues(1.0)
    made.sample_s = {"gnmi": 5.0, "lldp": 30.0}
    names: list[str] = []
    for number in range(200):
        made.add(Leaf("gnmi", "Ethernet0", "phy_rx_bytes", number), number)
        made.add(Leaf("gnmi", f"Ethernet{1 + number // 100}", "phy_rx_bytes", number), number)
        made.add(Leaf("lldp", "Ethernet0", "system-name", f"spine{number}", str(number // 4)), 1)
        blocks = made.blocks()
        names = [item.info["peer_node"] for block in blocks if block.source == "lldp"
                 for item in block.objects]  # fmt: skip
        now_s += 30
    assert "spine199" in names
    assert {item.id for block in made.blocks() for item in block.objects if item.port} == {
        "Ethernet0", "Ethernet2",
    }  # fmt: skip
    assert not any(block.limits for block in made.blocks())


def test_what_a_device_costs_includes_the_decoding_of_its_messages() -> None:
    """gRPC decoded before anything was measured: 8 MiB of empty updates took 0.5 s, for nothing."""
    elements = gnmi_pb2.Path(elem=[gnmi_pb2.PathElem()] * 4_000_000)
    reply = response(gnmi_pb2.Notification(prefix=elements))
    cpu = budget()
    poller = GnmiPoller(GnmiClient(None, []), 1.0, cpu)
    assert not poller._metered(poller._take, response(gnmi_pb2.Notification()))
    cpu.take(CPU_BURST_S - 0.01, time.monotonic())
    with pytest.raises(Misbehaved, match=r"0\.1 s of CPU time a second"):
        poller._metered(poller._take, reply)
    with pytest.raises(Misbehaved, match="no SubscribeResponse of gNMI"):
        GnmiPoller(GnmiClient(None, []), 1.0, budget())._take(b"\xff" * 100)


async def test_encodings_of_a_device_are_numbers_of_any_size(served: Served) -> None:
    """One that is not known was an unexpected error, and 16 MiB of them took the loop 5 s."""
    reply = gnmi_pb2.CapabilityResponse(supported_encodings=[99, 2]).SerializeToString()
    assert usual_encoding(reply) == "PROTO"
    many = gnmi_pb2.CapabilityResponse(supported_encodings=[0] * (8 << 20)).SerializeToString()
    began_s = time.thread_time()
    assert usual_encoding(many) == "JSON"
    assert time.thread_time() - began_s < 1
    served.device.encodings = [99, 4]
    await served.start()
    await heard(await served.session(), "phy_rx_bytes")


async def test_a_device_without_interfaces_is_an_error(served: Served) -> None:
    served.device.unsupported = ("interfaces",)
    await served.start()
    session = await served.session()
    with pytest.raises(Unreachable, match="unimplemented: no such path"):
        await heard(session, "phy_rx_bytes")


async def test_a_device_without_counters_is_not_silent(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each poll waited 20 s for counters: the device was stale, up and stale again."""
    monkeypatch.setattr(gnmi_transport, "_FIRST_S", 0.5)
    served.device.tree = {
        path: value for path, value in served.device.tree.items() if "counters" not in path
    }
    await served.start()
    session = await served.session()
    began_s, frames = time.monotonic(), 0
    while frames < 20:
        frames += isinstance(decode(await session.readline()), Frame)
    assert time.monotonic() - began_s < 8, "polls are 0.1 s apart"


async def test_an_interface_that_is_no_port_is_left_out(served: Served) -> None:
    served.device.port("Vlan10", 1, 1)
    served.device.tree["interfaces/interface[name=Vlan10]/state/type"] = "ift:l3ipvlan"
    await served.start()
    session = await served.session()
    said = await heard(session, "phy_rx_bytes", "netdev_up")
    await said.until(lambda said: "Ethernet2/1" in said.values and "Vlan10" not in said.infos)
    assert PORT in said.infos


async def test_the_login_goes_over_tls_only(served: Served, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{gnmi.USER}:{gnmi.PASSWORD}")
    secret.chmod(0o600)
    _, certificate = self_made(tmp_path)
    key = (tmp_path / "switch.key").read_bytes()
    served.device.needs_login = True
    await served.start((key, certificate.read_bytes()))
    session = await served.session(secret=str(secret), tls=str(certificate))
    await heard(session, "phy_rx_bytes")
    wrong = tmp_path / "wrong"
    wrong.write_text("monitor:gu3ss")
    wrong.chmod(0o600)
    session = await served.session(secret=str(wrong), tls=str(certificate))
    with pytest.raises(LoginRefused, match="wrong user or password"):
        await heard(session, "phy_rx_bytes")
    with pytest.raises(BadSecret, match="no password without TLS"):
        await served.session(secret=str(secret), tls="no")
    with pytest.raises(BadTrust, match="tls=FILE"):
        await served.session(tls="insecure")
    with pytest.raises(NodeError):
        await heard(await served.session(secret=str(secret), tls="yes"), "phy_rx_bytes")


def test_a_device_that_quotes_the_password_does_not_show_it() -> None:
    code = SimpleNamespace(name="UNAUTHENTICATED")
    status = SimpleNamespace(code=lambda: code, details=lambda: "monitor/S3CRET is refused")
    client = GnmiClient(None, [("username", "monitor"), ("password", "S3CRET")])
    said = str(client._error(status))
    assert said == "the device refuses: monitor/… is refused"


async def test_a_device_that_is_not_there_says_so(served: Served) -> None:
    served.port = 1
    with pytest.raises(Unreachable, match="no gNMI"):
        await heard(await served.session(), "phy_rx_bytes")


async def test_without_the_extra_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "grpc.aio", None)
    with pytest.raises(Unreachable, match=r"extra fabmon\[gnmi\]"):
        await GnmiTransport(ProbeSettings()).open(HOST)


def test_a_container_in_one_document_has_the_leaves_of_all_interfaces() -> None:
    document = {
        "openconfig-interfaces:interface": [
            {
                "name": "Ethernet1",
                "state": {
                    "oper-status": "UP",
                    "counters": {"in-octets": "18446744073709551615", "out-octets": "-1"},
                },
            }
        ]
    }
    known = [each for each in leaves((("interfaces", {}),), document) if each is not None]
    found = {(each.port, each.name): each.value for each in known}
    assert found == {("Ethernet1", "netdev_up"): 1, ("Ethernet1", "phy_rx_bytes"): 2**64 - 1}


def test_no_document_makes_the_reader_fail() -> None:
    dice = random.Random(9)
    words = ["interface", "name", "state", "counters", "in-octets", "interfaces", "queue", "lldp"]

    def value(depth: int) -> Any:
        kind = dice.randrange(6 if depth < 20 else 4)
        if kind == 4:
            return {dice.choice(words): value(depth + 1) for _ in range(3)}
        if kind == 5:
            return [value(depth + 1) for _ in range(2)]
        return dice.choice((None, True, "x", "12", 3, -1, 2.5, 10**30))

    for _ in range(2000):
        path = tuple((dice.choice(words), {"name": "x"}) for _ in range(dice.randrange(4)))
        for leaf in leaves(path, value(0)):
            assert leaf is None or not isinstance(leaf.value, int) or 0 <= leaf.value < 2**64
    assert json_value(b"[" * 100_000) is json_value(b'"\xff"') is None


def test_names_of_speeds_and_queues() -> None:
    assert speed("openconfig-if-ethernet:SPEED_800GB") == 800 * 10**9
    assert speed("SPEED_UNKNOWN") is None
    assert [queue_number(each) for each in ("0", "UC7", "Ethernet1-3", "8", "x", "")] == [
        0,
        7,
        3,
        None,
        None,
        None,
    ]


@pytest.fixture
def empty_frames() -> Iterator[int]:
    """The port of a server that sends frames of HTTP/2 of an unknown type, without end; what is
    garbage is not collected."""
    frames = b"\0\0\0\x77\0\0\0\0\0" * 4000
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, suppress(OSError):
                        # Settings, and that those of the console are known.
                        connection.sendall(b"\0\0\0\4\0\0\0\0\0" + b"\0\0\0\4\1\0\0\0\0")
                        while True:
                            connection.sendall(frames)

        Thread(target=serve, daemon=True).start()
        gc.disable()
        yield listener.getsockname()[1]
        gc.enable()
        listener.shutdown(socket.SHUT_RDWR)


async def test_frames_without_content_end_the_session(empty_frames: int) -> None:
    """gRPC has no limit for them: they took a core, and up to 1 GB, for as long as they came."""
    transport = GnmiTransport(ProbeSettings(interval_s=0.1))
    device = msgspec.structs.replace(HOST, port=empty_frames)
    # However slowly they come here, they are too many, and stay so.
    transport._sent[device.name] = TokenBucket(1 << 20, 1.0, time.monotonic())
    session = await transport.open(device)
    try:
        with pytest.raises(Misbehaved, match="sends more than 8 MiB a second"):
            await session.readline()
    finally:
        await session.close()
    peer = ("127.0.0.1", empty_frames)

    def has_ended() -> bool:
        for _ in range(3000):
            if not Connections().to(peer):
                return True
            time.sleep(0.02)
        return False

    assert await asyncio.to_thread(has_ended)
    with pytest.raises(Misbehaved, match="sends more than 8 MiB a second"):
        await transport.open(device)


def test_what_a_peer_sent_is_counted_and_nothing_of_others() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        port = listener.getsockname()[1]
        ends = [socket.create_connection(each.getsockname()) for each in (listener, other)]
        accepted = [listener.accept()[0], other.accept()[0]]
        try:
            for end, size in zip(accepted, (1000, 5000), strict=True):
                end.sendall(b"x" * size)
            assert len(ends[0].recv(1000, socket.MSG_WAITALL)) == 1000
            count, other_count = ReceivedBytes(Connections()), ReceivedBytes(Connections())
            count.peers, other_count.peers = {("127.0.0.1", port)}, {("192.0.2.1", port)}
            assert count.more() == 1000
            assert count.more() == 0
            assert other_count.more() == 0
        finally:
            for end in (*ends, *accepted):
                end.close()
        assert count.more() == 0


def test_devices_that_are_not_found_are_looked_for_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """200 behind a proxy looked through 3,000 descriptors each: the screen stood still for 4 s."""
    looks = 0

    def look() -> list[int]:
        nonlocal looks
        looks += 1
        return []

    now_s = 1000.0
    monkeypatch.setattr(received_bytes, "_descriptors", look)
    monkeypatch.setattr(received_bytes, "time", SimpleNamespace(monotonic=lambda: now_s))
    connections = Connections()
    devices = [ReceivedBytes(connections) for _ in range(200)]
    for number, each in enumerate(devices):
        each.peers = {(f"192.0.2.{number}", 9339)}
    assert [each.more() for each in devices] == [0] * 200
    assert looks == 1
    now_s += 5
    assert [each.more() for each in devices] == [0] * 200
    assert looks == 2


async def test_what_a_connection_received_is_counted_once_where_the_next_session_keeps_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A device that had sent for an hour was taken for a flood, and left alone for minutes."""

    async def no_channel(host: Host) -> Any:
        async def close() -> None:
            pass

        return SimpleNamespace(close=close)

    monkeypatch.setattr(gnmi_transport, "open_channel", no_channel)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        device = msgspec.structs.replace(HOST, port=listener.getsockname()[1])
        transport = GnmiTransport(ProbeSettings(interval_s=0.1))
        transport._sent[device.name] = TokenBucket(1500, 1e-6, time.monotonic())
        with socket.create_connection(listener.getsockname()) as kept, listener.accept()[0] as far:
            far.sendall(b"x" * 1000)
            kept.recv(1000, socket.MSG_WAITALL)
            for _ in range(3):
                session = await transport.open(device)
                assert isinstance(session, PolledSession)
                poller = session._poller
                assert isinstance(poller, GnmiPoller)
                poller._check_flood()
            far.sendall(b"x" * 1000)
            kept.recv(1000, socket.MSG_WAITALL)
            assert isinstance(poller, GnmiPoller)
            with pytest.raises(Misbehaved):
                poller._check_flood()
