"""Switches that are read by the interface counters in their sFlow samples.

Nothing is sent to such a switch: its counters are as recent as its own interval, usually 20 to 30
s. Rates are by the agent's own clock.
"""

from __future__ import annotations

import asyncio
import time

from collectors.wire import Object
from fabmon.fabric.model import Host
from fabmon.fabric.time_wording import interval
from fabmon.feeds.errors import Unreachable
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.sflow.datagram import PortCounters
from fabmon.feeds.sflow.receiver import MOST_PORTS, SflowReceiver
from fabmon.feeds.transports.polled import (
    Counter32Extender,
    NodeReading,
    PolledSession,
    SampleClock,
    SourceBlock,
    SourceFailure,
    poll_duration,
    port_layout,
    sum_known,
    too_many_interfaces,
)
from fabmon.feeds.transports.transport import ProbeSession

_FIRST_S = 25.0
"""How long the first datagram is waited for: agents send one a second or more seldom."""
_SILENT_S = 120.0
"""An agent that sends nothing for this long is lost."""
_USUAL_S = 30.0
"""The interval of counters that is assumed until one is measured; it is not shown."""
_REBOOT_S = 5.0
_ETHERNET = (6, 117)
"""ifType (IANA) of Ethernet; an agent that gives none sends 0."""


class SflowTransport:
    """Nodes whose counters a receiver gets. Raises ValueError without one."""

    def __init__(self, settings: ProbeSettings, receiver: SflowReceiver | None) -> None:
        if receiver is None:
            raise ValueError("via=sflow needs a receiver")
        self._interval_s = settings.interval_s
        self._receiver = receiver

    async def open(self, host: Host) -> ProbeSession:
        """A session with what a switch sends."""
        poller = SflowPoller(self._receiver, host, self._interval_s)
        return PolledSession(poller, host.name, self._interval_s)

    async def close(self) -> None:
        """Do nothing: the receiver belongs to the feed."""


class _Port:
    """The clock and the wide counters of one interface."""

    def __init__(self) -> None:
        self.clock = SampleClock(_REBOOT_S)
        self.extender = Counter32Extender()
        self.arrived_ns = 0
        self.block: SourceBlock | None = None


class SflowPoller:
    """Turns the last counters of one agent into readings: a block for each port, since agents send
    the counters of different ports at different times."""

    def __init__(self, receiver: SflowReceiver, host: Host, interval_s: float) -> None:
        self._receiver = receiver
        self._host = host
        self._interval_s = interval_s
        self._ports: dict[int, _Port] = {}
        self._sent_every_s = 0
        self._last_s = time.monotonic()

    async def poll(self) -> NodeReading:
        """What has arrived since the last poll. Raises Unreachable while the agent is silent."""
        counters = await self._counters()
        now_s = time.monotonic()
        if counters is None or (not counters and now_s - self._last_s > _SILENT_S):
            raise self._silent()
        self._note_interval(self._receiver.interval_s(self._host.name))
        blocks = []
        self._ports = {index: port for index, port in self._ports.items() if index in counters}
        for index in sorted(counters):
            counted, uptime_ms, arrived_ns = counters[index]
            self._last_s = max(self._last_s, arrived_ns / 1e9)
            port = self._ports.setdefault(index, _Port())
            blocks.append(self._block(port, counted, uptime_ms, arrived_ns))
        if now_s - self._last_s > _SILENT_S:
            raise self._silent()
        if blocks and self._receiver.has_left_out(self._host.name):
            blocks[0] = blocks[0]._replace(limits=(too_many_interfaces(MOST_PORTS),))
        failures = {}
        if not blocks:
            text = "no interface counters yet: is counter polling configured on the agent?"
            failures["sflow"] = SourceFailure("absent", text)
        return NodeReading([*blocks, poll_duration(0)], {}, failures)

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    async def _counters(self) -> dict[int, tuple[PortCounters, int, int]] | None:
        """The last counters; waits for the agent's first datagram."""
        until_s = time.monotonic() + (0 if self._ports else _FIRST_S)
        while True:
            found = self._receiver.counters(self._host.name)
            if found is not None or time.monotonic() >= until_s:
                return None if found is None else dict(found)
            self._receiver.arrived.clear()
            try:
                async with asyncio.timeout(min(1.0, until_s - time.monotonic())):
                    await self._receiver.arrived.wait()
            except TimeoutError:
                continue

    def _silent(self) -> Unreachable:
        where = self._host.address or self._host.name
        return Unreachable(
            f"no sFlow from agent {where} on port {self._receiver.port} for"
            f" {interval(_FIRST_S if not self._ports else _SILENT_S)}: is fabmon's address its"
            " collector, and is this its agent address?",
            "silent",
        )

    def _block(
        self, port: _Port, counted: PortCounters, uptime_ms: int, arrived_ns: int
    ) -> SourceBlock:
        """The block of a port; without values where no sample has come since the last."""
        if port.block is not None and arrived_ns == port.arrived_ns:
            return port.block._replace(values=None, every=self._every)
        port.arrived_ns = arrived_ns
        mono_ns = port.clock.at(uptime_ms * 1_000_000, arrived_ns)
        item = _object(counted, self._sent_every_s)
        objects, values = port_layout([(item, _values(counted, port.extender))])
        block = SourceBlock("sflow", objects, values, mono_ns or arrived_ns, self._every)
        if port.block is not None and port.block.objects == objects:
            # The same tuple, so that the layout is not built again.
            block = block._replace(objects=port.block.objects)
        if mono_ns is None:
            block = block._replace(values=None)
        port.block = block
        return block

    def _note_interval(self, every_s: int) -> None:
        """Note the measured interval on all ports at once, so that it makes one new hello."""
        if every_s == self._sent_every_s:
            return
        self._sent_every_s = every_s
        fact = _sent_every(every_s)
        for port in self._ports.values():
            if port.block is not None:
                objects = tuple(
                    each._replace(info={**each.info, "counters": fact})
                    for each in port.block.objects
                )
                port.block = port.block._replace(objects=objects)

    @property
    def _every(self) -> int:
        """Ticks between two samples."""
        return max(1, round((self._sent_every_s or _USUAL_S) / self._interval_s))


def _sent_every(every_s: int) -> str:
    """How often the agent sends counters, as a fact of its ports."""
    return f"every {interval(every_s)}" if every_s else "sent at an interval not known yet"


def _object(counted: PortCounters, sent_every_s: int) -> Object:
    """An interface as a port, called `if17` where the agent does not send its name."""
    name = counted.name or f"if{counted.if_index}"
    kind = "ethernet" if counted.if_type in (0, *_ETHERNET) else "other"
    facts = {
        "netdev": name,
        "driver": "sflow",
        "ifindex": counted.if_index,
        "counters": _sent_every(sent_every_s),
    }
    return Object(name, kind, name if kind == "ethernet" else None, facts, ())


def _values(counted: PortCounters, extender: Counter32Extender) -> dict[str, int | None]:
    if counted.if_type not in (0, *_ETHERNET):
        return {}

    def wide(metric: str, value: int | None) -> int | None:
        return extender.extend((counted.name, metric), value)

    def packets(metric: str, parts: tuple[int | None, ...]) -> int | None:
        return sum_known(wide(f"{metric}{place}", part) for place, part in enumerate(parts))

    return {
        "netdev_up": int(counted.is_up),
        "netdev_speed_bps": counted.speed_bps or None,
        "phy_rx_bytes": counted.rx_bytes,
        "phy_tx_bytes": counted.tx_bytes,
        "phy_rx_packets": packets("phy_rx_packets", counted.rx_packets),
        "phy_tx_packets": packets("phy_tx_packets", counted.tx_packets),
        "phy_rx_discards": wide("phy_rx_discards", counted.rx_discards),
        "phy_tx_discards": wide("phy_tx_discards", counted.tx_discards),
        "phy_rx_errors": wide("phy_rx_errors", counted.rx_errors),
        "phy_tx_errors": wide("phy_tx_errors", counted.tx_errors),
    }
