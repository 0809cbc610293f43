"""Devices that stream and agents that send, and lie: what comes is read or refused."""

from __future__ import annotations

import asyncio
import json
import random
import struct
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
import pytest

from fabmon.fabric.flows.sampled import FlowSamples
from fabmon.fabric.model import SWITCH, Host
from fabmon.fabric.wire.messages import WireError
from fabmon.feeds.errors import NodeError
from fabmon.feeds.sflow.receiver import SflowReceiver
from fabmon.feeds.transports.sflow import SflowPoller
from tests.fixtures import sflow
from tests.fuzzing import PATIENCE_S, changed, try_cases
from tests.requirements import need_package
from tests.unit.feeds.fakes import FakeClock
from tests.unit.feeds.test_polled_fuzz import budget, lie, watched
from tests.unit.feeds.test_wire_fuzz import HOSTILE, PIECES

LINES = 6
PORTS = ("Ethernet1/1", "Ethernet2/1")


class LyingDevice:
    """A gNMI device whose notifications are changed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._share = chance.choice((0.001, 0.01, 0.1, 0.5))

    async def capabilities(self) -> bytes:
        """What it offers, changed."""
        from pygnmi.spec.v080 import gnmi_pb2

        return self._bytes(gnmi_pb2.CapabilityResponse(supported_encodings=[4, 0]))

    async def subscribe(
        self, paths: Sequence[str], sample_s: float | None, encoding: str
    ) -> AsyncGenerator[bytes]:
        """Some notifications, and then none."""
        for _ in range(20):
            yield self._notification()
            await asyncio.sleep(0)
        await asyncio.sleep(3600)

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    def _notification(self) -> bytes:
        from pygnmi.spec.v080 import gnmi_pb2

        chance = self._chance
        prefix, document = chance.choice(_documents())
        text = json.dumps(lie(document, chance, self._share)).encode()
        path = gnmi_pb2.Path(
            elem=[
                gnmi_pb2.PathElem(
                    name=self._text(name), key={self._text(k): self._text(v) for k, v in keys}
                )
                for name, keys in prefix
            ]
        )
        value = gnmi_pb2.TypedValue(json_ietf_val=text)
        if chance.random() < 0.2:
            value = gnmi_pb2.TypedValue(uint_val=chance.choice((0, 2**64 - 1)))
        notification = gnmi_pb2.Notification(
            timestamp=chance.choice((0, -1, 1, 10**18, 2**63 - 1, -(2**63))),
            prefix=path if chance.random() < 0.3 else None,
            update=[gnmi_pb2.Update(path=path, val=value)],
            delete=[path] if chance.random() < 0.1 else [],
        )
        return self._bytes(gnmi_pb2.SubscribeResponse(update=notification))

    def _text(self, text: str) -> str:
        if self._chance.random() > self._share:
            return text
        return text + str(self._chance.choice(("", *PIECES, "\u202e\x1b[31m", "a" * 500)))

    def _bytes(self, message: Any) -> bytes:
        data = bytes(message.SerializeToString())
        return changed(data, self._chance) if self._chance.random() < self._share else data


def _documents() -> list[tuple[list[tuple[str, list[tuple[str, str]]]], Any]]:
    """Paths, and the documents below them."""
    counters = {"in-octets": "12", "out-octets": 7, "in-discards": 0, "carrier-transitions": 2}
    state = {
        **{"oper-status": "UP", "ifindex": 7, "type": "iana-if-type:ethernetCsmacd", "mtu": 9000},
        "counters": counters,
    }
    port = {"state": state, "ethernet": {"state": {"port-speed": "SPEED_400GB"}}}
    queue = {"state": {"transmit-octets": 9, "ecn-marked-pkts": "3"}}
    far = {"state": {"system-name": "spine1", "port-id": "Ethernet9/1"}}
    return [
        ([("interfaces", [])], {"interface": [{"name": name, **port} for name in PORTS]}),
        ([("interfaces", []), ("interface", [("name", PORTS[0])])], port),
        (
            [
                *(("qos", []), ("interfaces", []), ("interface", [("interface-id", PORTS[0])])),
                *(("output", []), ("queues", []), ("queue", [("name", "UC3")])),
            ],
            queue,
        ),
        (
            [
                *(("lldp", []), ("interfaces", []), ("interface", [("name", PORTS[1])])),
                *(("neighbors", []), ("neighbor", [("id", "1")])),
            ],
            far,
        ),
    ]


@pytest.mark.timeout(PATIENCE_S)
def test_what_a_gnmi_device_streams_is_read_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    need_package("pygnmi")
    from fabmon.feeds.transports import gnmi

    monkeypatch.setattr(gnmi, "_FIRST_S", 0.02)
    host = Host(name="a", via="gnmi", role=SWITCH)

    def attempt(chance: random.Random) -> None:
        poller = gnmi.GnmiPoller(LyingDevice(chance), 0.001, budget())  # type: ignore[arg-type]
        try:
            asyncio.run(watched(poller, host, LINES))
        except (NodeError, WireError):
            return  # Refused.

    try_cases(attempt, share=1 / 8)


def _samples(chance: random.Random, share: float) -> list[bytes]:
    """Samples of flows and of counters, with numbers and names that none has."""

    def number(usual: int) -> int:
        return chance.choice((0, 1, 2**31, 2**32 - 1)) if chance.random() < share else usual

    name = str(chance.choice((*HOSTILE, *PIECES))) if chance.random() < share else "Ethernet17"
    packet = sflow.roce("10.1.0.1", "10.1.9.2", 49_153 + chance.randrange(60), 0x1A2B)
    header = sflow.raw_header(packet, number(1000))
    counters = sflow.if_counters(number(17), 2**64 - 2, number(5), up=chance.random() < 0.5)
    return [
        sflow.flow_sample(header, source=number(17), rate=number(1000), input_port=number(17)),
        sflow.counter_sample(counters, sflow.port_name(name.encode("utf-8", "replace").decode())),
        struct.pack(">II", number(99), 8) + bytes(8),
    ]


@pytest.mark.timeout(PATIENCE_S)
def test_what_an_sflow_agent_sends_is_read_or_dropped() -> None:
    host = Host(name="a", address=sflow.AGENT, via="sflow", role=SWITCH)

    async def receive(chance: random.Random) -> None:
        clock = FakeClock()
        receiver = SflowReceiver("127.0.0.1:0", [host], clock)
        try:
            await receiver.run()
            share = chance.choice((0.0, 0.01, 0.1, 0.5))
            for seq in range(60):
                samples = chance.sample(_samples(chance, share), 3)
                data = sflow.datagram(
                    *samples,
                    sequence=chance.choice((seq, 2**32 - 1 - seq, 9_999 * seq)),
                    uptime_ms=chance.choice((1000 * seq, 2**32 - 1)),
                )
                receiver.datagram_received(
                    changed(data, chance) if chance.random() < share else data, None
                )
                clock.suspend(0.2)
            for batch in receiver.take():
                assert msgspec.convert(msgspec.to_builtins(batch), FlowSamples) == batch
            if receiver.counters("a"):
                await watched(SflowPoller(receiver, host, 0.001), host, LINES)
        finally:
            receiver.close()

    def attempt(chance: random.Random) -> None:
        try:
            asyncio.run(receive(chance))
        except (NodeError, WireError):
            return  # Refused.

    try_cases(attempt, share=1 / 8)
