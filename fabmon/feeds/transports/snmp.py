"""Switches that speak nothing but SNMP: IF-MIB with 64-bit counters, LLDP-MIB, versions 2c and 3.

Agents count anew every few seconds whatever they are asked: net-snmp every 3 s, switches every 5 to
15 s. A sample counts as one when some byte counter moved; its time is the agent's own uptime.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from collectors.wire import Object
from fabmon.fabric.model import Host
from fabmon.feeds import access, probe_input
from fabmon.feeds.errors import BadSecret, Unreachable
from fabmon.feeds.transports import snmp_mibs as tables
from fabmon.feeds.transports.polled import (
    NodeReading,
    PolledSession,
    SampleClock,
    SourceBlock,
    SourceFailure,
    poll_duration,
)
from fabmon.feeds.transports.snmp_client import Oid, SnmpAgent, SnmpTable, SnmpThread, credentials
from fabmon.feeds.transports.snmp_mibs import Counter32Extender, Interface
from fabmon.feeds.transports.transport import ProbeSession

PORT = 161
_DEADLINE_S = 20.0

_HELD_S = 15.0
"""Counters that stood still for this long are told all the same: there is no traffic."""

_DETAIL_S = 10.0
_SLOW_S = 60.0
"""Seconds between two looks at errors and packets, and at names and neighbours."""

_REST = 3
"""An agent, and this console, rest for so many times as long as the asking took."""

_REBOOT_S = 30.0
"""An uptime that fell behind the time that went by, by more than this, began anew."""

_SYS_NAME: Oid = (1, 3, 6, 1, 2, 1, 1, 5, 0)
_SYS_DESCR: Oid = (1, 3, 6, 1, 2, 1, 1, 1, 0)
_WRAP_CS = 1 << 32

_HOLDS = "secret= is a file with the community, or v3 USER ..."


class SnmpTransport:
    """Asks agents over UDP, with the community or the user of each one's secret."""

    def __init__(self, settings: probe_input.ProbeSettings) -> None:
        self._interval_s = settings.interval_s
        self._asking = SnmpThread()

    async def open(self, host: Host) -> ProbeSession:
        """A session with an agent. Raises BadSecret, and Unreachable without pysnmp."""
        if host.secret is None:
            raise BadSecret("via=snmp needs secret=FILE, a file that holds the community")
        secret = credentials(await asyncio.to_thread(access.read_secret, host.secret, _HOLDS))
        address = host.address or host.name
        agent = await self._asking.agent(address, host.port or PORT, secret)
        poller = SnmpPoller(self._asking, agent, self._interval_s)
        return PolledSession(poller, host.name, self._interval_s)

    async def close(self) -> None:
        """End the thread that asks."""
        await self._asking.close()


class SnmpPoller:
    """Asks one agent: bytes and state every time, the rest when its turn comes."""

    def __init__(self, asking: SnmpThread, agent: SnmpAgent, interval_s: float) -> None:
        self._asking = asking
        self._agent = agent
        self._interval_s = interval_s
        self._rest_until_s = 0.0
        self._slow_at_s = self._detail_at_s = self._moved_at_s = float("-inf")
        self._uptime: tuple[int, float] | None = None
        self._clock = SampleClock(_REBOOT_S)
        self._detail_clock = SampleClock(_REBOOT_S)
        self._wide = Counter32Extender()
        self._known: set[Oid] = set()
        self._ports: dict[Oid, Interface] = {}
        self._last: list[int | None] = []
        self._parts: dict[str, SourceBlock] = {}
        self._about: dict[str, str] = {}
        self._took_ns = 0

    async def poll(self) -> NodeReading:
        """Ask for what is due; nothing at all while the agent rests. Raises NodeError."""
        start_ns = time.monotonic_ns()
        self._parts = {name: part._replace(values=None) for name, part in self._parts.items()}
        if start_ns / 1e9 >= self._rest_until_s:
            try:
                async with asyncio.timeout(_DEADLINE_S):
                    await self._read(start_ns / 1e9)
            except TimeoutError:
                raise Unreachable(f"not done in {_DEADLINE_S:g} s: too slow", "timeout") from None
            self._took_ns = time.monotonic_ns() - start_ns
            self._rest_until_s = (start_ns + (1 + _REST) * self._took_ns) / 1e9
        parts = [*self._parts.values(), poll_duration(self._took_ns)]
        return NodeReading(parts, dict(self._about), self._troubles())

    async def close(self) -> None:
        """The agent is shared; nothing is held."""

    async def _read(self, now_s: float) -> None:
        table = await self._asking.run(self._agent.table(tables.TRAFFIC))
        near_ns = time.monotonic_ns()
        rebooted = self._note_uptime(table.uptime_cs, near_ns / 1e9)
        unknown = not set(table.columns[tables.IF_OPER]) <= self._known
        if rebooted or unknown or now_s - self._slow_at_s >= _SLOW_S:
            await self._look()
            self._slow_at_s = now_s
        self._take_traffic(table, near_ns)
        if now_s - self._detail_at_s >= _DETAIL_S:
            self._detail_at_s = now_s
            await self._read_detail()

    def _take_traffic(self, table: SnmpTable, near_ns: int) -> None:
        objects, values = _laid_out(
            [(port, tables.traffic(table, port)) for port in self._ports.values()]
        )
        if not objects:
            self._parts.pop("snmp", None)
            return
        every = max(1, round(_HELD_S / self._interval_s))
        part = SourceBlock("snmp", objects, None, near_ns, every)
        if values != self._last or near_ns / 1e9 - self._moved_at_s >= _HELD_S:
            self._last, self._moved_at_s = values, near_ns / 1e9
            clock_ns = self._sampled(self._clock, table, near_ns)
            if clock_ns is not None:
                part = part._replace(values=values, mono_ns=clock_ns)
        self._parts["snmp"] = part

    async def _read_detail(self) -> None:
        table = await self._asking.run(self._agent.table(tables.DETAIL))
        near_ns = time.monotonic_ns()
        objects, values = _laid_out(
            [(port, tables.detail(table, port, self._wide)) for port in self._ports.values()]
        )
        clock_ns = self._sampled(self._detail_clock, table, near_ns)
        if objects and clock_ns is not None:
            every = max(1, round(_DETAIL_S / self._interval_s))
            self._parts["snmp_detail"] = SourceBlock(
                "snmp_detail", objects, values, clock_ns, every
            )

    async def _look(self) -> None:
        """What the ports are called, who is at their other ends, and who the agent is."""
        names = await self._asking.run(self._agent.table(tables.NAMES))
        self._known = set(names.columns[tables.IF_TYPE])
        self._ports = {port.row: port for port in tables.ports_of(names)}
        name, description = await self._asking.run(self._agent.get([_SYS_NAME, _SYS_DESCR]))
        for key, value in (("hostname", name), ("kernel", description)):
            if isinstance(value, bytes) and value:
                self._about[key] = value.decode("utf-8", "replace")
        remote = await self._asking.run(self._agent.table(tables.LLDP_REMOTE))
        local = await self._asking.run(self._agent.table(tables.LLDP_LOCAL))
        peers = tables.peers(remote, local, self._ports)
        self._parts.pop("lldp", None)
        if peers:
            every = max(1, round(_SLOW_S / self._interval_s))
            self._parts["lldp"] = SourceBlock("lldp", peers, [], time.monotonic_ns(), every)

    def _note_uptime(self, uptime_cs: int | None, now_s: float) -> bool:
        """Whether the agent began anew since the last time; an uptime that wraps did not."""
        if uptime_cs is None:
            return False
        before, self._uptime = self._uptime, (uptime_cs, now_s)
        if before is not None:
            went_s = (uptime_cs - before[0]) % _WRAP_CS / 100
            if abs(went_s - (now_s - before[1])) <= _REBOOT_S:
                return False
        self._about["boot_id"] = f"{time.time() - uptime_cs / 100:.0f}"
        self._clock, self._detail_clock = SampleClock(_REBOOT_S), SampleClock(_REBOOT_S)
        self._wide = Counter32Extender()
        return True

    def _sampled(self, clock: SampleClock, table: SnmpTable, near_ns: int) -> int | None:
        if table.uptime_cs is None:
            return near_ns
        return clock.at(table.uptime_cs * 10_000_000, near_ns)

    def _troubles(self) -> dict[str, SourceFailure]:
        if not self._ports:
            text = "no Ethernet port in ifTable: may this account see 1.3.6.1.2.1.2?"
            return {"snmp": SourceFailure("absent", text)}
        part = self._parts.get("snmp")
        if part is None or not any("phy_rx_bytes" in item.metrics for item in part.objects):
            text = "no ifHCInOctets: an agent without 64-bit counters (ifXTable)"
            return {"snmp": SourceFailure("unsupported", text)}
        return {}


def _laid_out(
    ports: Sequence[tuple[Interface, dict[str, int | None]]],
) -> tuple[tuple[Object, ...], list[int | None]]:
    """Ports with the metrics that they have, and their values."""
    objects: list[Object] = []
    values: list[int | None] = []
    for port, numbers in ports:
        given = {metric: value for metric, value in numbers.items() if value is not None}
        if given:
            objects.append(Object(port.name, port.kind, port.name, port.info, tuple(given)))
            values += list(given.values())
    return tuple(objects), values
