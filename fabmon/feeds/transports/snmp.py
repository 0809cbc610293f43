"""Switches that only speak SNMP: IF-MIB with 64-bit counters, LLDP-MIB, versions 2c and 3.

Agents refresh their counters every few seconds however often they are polled: net-snmp every 3 s,
switches every 5 to 15 s. When they did is computed from the polls that find other byte counters, by
the agent's own uptime.
"""

from __future__ import annotations

import asyncio
import time

from fabmon.fabric.model import Host
from fabmon.fabric.time_wording import interval
from fabmon.feeds.access import read_secret
from fabmon.feeds.errors import BadSecret, Unreachable
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.refresh_clock import RefreshClock, without_counters
from fabmon.feeds.token_bucket import CpuBudgets, TokenBucket
from fabmon.feeds.transports import snmp_mibs
from fabmon.feeds.transports.polled import (
    Counter32Extender,
    PacedPoller,
    PolledSession,
    SampleClock,
    SourceBlock,
    SourceFailure,
    port_layout,
)
from fabmon.feeds.transports.snmp_client import (
    Oid,
    SnmpAgent,
    SnmpTable,
    SnmpThread,
    parse_credentials,
)
from fabmon.feeds.transports.snmp_mibs import Interface
from fabmon.feeds.transports.transport import ProbeSession

_PORT = 161
_DEADLINE_S = 20.0

_IDLE_S = 15.0
"""Byte counters that did not change for this long are sent as a sample: there is no traffic."""

_DETAIL_S = 10.0
"""Seconds between two reads of errors and packets."""

_SLOW_S = 60.0
"""Seconds between two reads of names and neighbours."""

_REBOOT_S = 30.0
"""An uptime that is behind the elapsed time by more than this started from zero again."""

_SYS_NAME: Oid = (1, 3, 6, 1, 2, 1, 1, 5, 0)
_SYS_DESCR: Oid = (1, 3, 6, 1, 2, 1, 1, 1, 0)
_UPTIME_WRAP_CS = 1 << 32


class SnmpTransport:
    """Polls agents over UDP, with the community or user in each one's secret file."""

    def __init__(self, settings: ProbeSettings) -> None:
        self._interval_s = settings.interval_s
        self._thread = SnmpThread()
        self._budgets = CpuBudgets()

    async def open(self, host: Host) -> ProbeSession:
        """A session with an agent. Raises BadSecret, Unreachable without pysnmp, and Misbehaved
        where the last session used up the CPU time of the node."""
        cpu = self._budgets.of(host.name)
        if host.secret is None:
            raise BadSecret("via=snmp needs secret=FILE, a file that holds the community")
        hint = "secret= is a file with the community, or v3 USER ..."
        secret = await asyncio.to_thread(read_secret, host.secret, hint)
        agent = await self._thread.agent(
            host.address or host.name, host.port or _PORT, parse_credentials(secret)
        )
        poller = SnmpPoller(self._thread, agent, self._interval_s, cpu)
        return PolledSession(poller, host.name, self._interval_s)

    async def close(self) -> None:
        """End the thread of the requests."""
        await self._thread.close()


class SnmpPoller(PacedPoller):
    """Polls one agent: byte counters and state each time, the rest less often."""

    def __init__(
        self, thread: SnmpThread, agent: SnmpAgent, interval_s: float, cpu: TokenBucket
    ) -> None:
        super().__init__(cpu)
        self._thread = thread
        self._agent = agent
        self._interval_s = interval_s
        self._slow_at_s = self._detail_at_s = float("-inf")
        self._uptime: tuple[int, float] | None = None
        self._clock = SampleClock(_REBOOT_S)
        self._refreshes = RefreshClock(_IDLE_S)
        self._extender = Counter32Extender()
        self._rows: set[Oid] = set()
        self._ports: dict[Oid, Interface] = {}

    async def read(self, now_s: float) -> None:
        """Read what is due, within 20 s. Raises NodeError."""
        before_s = self._agent.spent_s
        try:
            async with asyncio.timeout(_DEADLINE_S):
                await self._read(now_s)
        except TimeoutError:
            raise Unreachable(f"too slow: not done in {interval(_DEADLINE_S)}", "timeout") from None
        finally:
            self.cpu.take(self._agent.spent_s - before_s, time.monotonic())

    def failures(self) -> dict[str, SourceFailure]:
        """What the agent does not have: Ethernet ports, or 64-bit counters."""
        if not self._ports:
            text = "no Ethernet port in ifTable: may this account read 1.3.6.1.2.1.2?"
            return {"snmp": SourceFailure("absent", text)}
        block = self.blocks.get("snmp")
        if block is None or not any("phy_rx_bytes" in item.metrics for item in block.objects):
            text = "no ifHCInOctets: an agent without 64-bit counters (ifXTable)"
            return {"snmp": SourceFailure("unsupported", text)}
        return {}

    async def _read(self, now_s: float) -> None:
        table = await self._thread.run(self._agent.table(snmp_mibs.TRAFFIC))
        console_ns = time.monotonic_ns()
        rebooted = self._note_uptime(table.uptime_cs, console_ns / 1e9)
        has_new_rows = not set(table.columns[snmp_mibs.IF_OPER]) <= self._rows
        if rebooted or has_new_rows or now_s - self._slow_at_s >= _SLOW_S:
            await self._read_names()
            self._slow_at_s = now_s
        self._add_traffic(table, self._read_ns(table, console_ns))
        if now_s - self._detail_at_s >= _DETAIL_S:
            self._detail_at_s = now_s
            await self._read_detail()

    def _add_traffic(self, table: SnmpTable, read_ns: int) -> None:
        objects, values = port_layout(
            (port.object(), snmp_mibs.traffic(table, port)) for port in self._ports.values()
        )
        if not objects:
            self.blocks.pop("snmp", None)
            return
        block = SourceBlock("snmp", objects, None, read_ns, self._every(_IDLE_S))
        sample = self._refreshes.sample(objects, values, read_ns)
        if sample is not None:
            block = block._replace(mono_ns=sample[0], values=sample[1])
        self.blocks["snmp"] = block

    async def _read_detail(self) -> None:
        table = await self._thread.run(self._agent.table(snmp_mibs.DETAIL))
        console_ns = time.monotonic_ns()
        objects, values = port_layout(
            (port.object(), snmp_mibs.detail(table, port, self._extender))
            for port in self._ports.values()
        )
        clock_ns = self._refreshes.last_refresh_ns(self._read_ns(table, console_ns))
        if not self._refreshes.is_known:
            values = without_counters(objects, values)
        if objects:
            self.blocks["snmp_detail"] = SourceBlock(
                "snmp_detail", objects, values, clock_ns, self._every(_DETAIL_S)
            )

    async def _read_names(self) -> None:
        """Read the names of the ports and of the agent, and the neighbours."""
        names = await self._thread.run(self._agent.table(snmp_mibs.NAMES))
        self._rows = set(names.columns[snmp_mibs.IF_TYPE])
        self._ports = {port.row: port for port in snmp_mibs.interfaces(names)}
        name, description = await self._thread.run(self._agent.get([_SYS_NAME, _SYS_DESCR]))
        for key, value in (("hostname", name), ("kernel", description)):
            if isinstance(value, bytes) and value:
                self.about[key] = value.decode("utf-8", "replace")
        remote = await self._thread.run(self._agent.table(snmp_mibs.LLDP_REMOTE))
        local = await self._thread.run(self._agent.table(snmp_mibs.LLDP_LOCAL))
        peers = snmp_mibs.peers(remote, local, self._ports)
        self.blocks.pop("lldp", None)
        if peers:
            self.blocks["lldp"] = SourceBlock(
                "lldp", peers, [], time.monotonic_ns(), self._every(_SLOW_S)
            )

    def _every(self, seconds: float) -> int:
        return max(1, round(seconds / self._interval_s))

    def _note_uptime(self, uptime_cs: int | None, now_s: float) -> bool:
        """Whether the agent restarted since the last read; a wrap of the uptime is no restart."""
        if uptime_cs is None:
            return False
        before, self._uptime = self._uptime, (uptime_cs, now_s)
        if before is not None:
            elapsed_s = (uptime_cs - before[0]) % _UPTIME_WRAP_CS / 100
            if abs(elapsed_s - (now_s - before[1])) <= _REBOOT_S:
                return False
        self.about["boot_id"] = f"{time.time() - uptime_cs / 100:.0f}"
        self._clock, self._refreshes = SampleClock(_REBOOT_S), RefreshClock(_IDLE_S)
        self._extender = Counter32Extender()
        return True

    def _read_ns(self, table: SnmpTable, console_ns: int) -> int:
        """When a table was read, by the agent's uptime where it has one."""
        if table.uptime_cs is None:
            return console_ns
        return self._clock.at(table.uptime_cs * 10_000_000, console_ns) or self._clock.now_ns
