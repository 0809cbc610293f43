"""Arista switches, asked over eAPI: show commands as JSON-RPC over HTTPS.

EOS: `management api http-commands`, `no shutdown`. An account of privilege 1 is enough; nothing is
configured or cleared. A command that a platform does not have costs its own part only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fabmon.fabric.model import Host
from fabmon.feeds import access, probe_input
from fabmon.feeds.errors import BadSecret, Misbehaved, Unreachable
from fabmon.feeds.http_client import ApiServer, HttpClient, HttpStatusError, api_server_of, basic
from fabmon.feeds.transports import eapi_show as answers
from fabmon.feeds.transports.eapi_show import ShowResult
from fabmon.feeds.transports.polled import (
    NodeReading,
    PolledSession,
    SampleClock,
    SourceBlock,
    SourceFailure,
    poll_duration,
)
from fabmon.feeds.transports.transport import ProbeSession

PORT = 443
_DEADLINE_S = 15.0
"""A big chassis takes seconds to write `show interfaces`."""

_SLOW_S = 60.0
"""Seconds between two looks at what hardly changes: neighbours, names."""

_ASK_AGAIN_S = 600.0
"""Seconds after which a command that was refused is tried once more."""

_REST = 3
"""A switch rests for so many times as long as an answer took: its CPU has routes to keep."""

_HELD_S = 10.0
"""EOS counts anew every few seconds; a rate is held for 2.5 times this without a new sample."""

_REBOOT_S = 120.0
"""Boot times that differ by less are the same boot, told by a clock that was adjusted."""

_HOLDS = "secret= is a file with user:password"


class _Command(NamedTuple):
    source: str
    text: str
    read: Callable[[Any], ShowResult] | None
    slow: bool = False


_INTERFACES = "interfaces"

_COMMANDS = (
    _Command(_INTERFACES, "show interfaces", answers.interfaces),
    _Command("pfc", "show priority-flow-control counters", answers.pfc),
    _Command("pfc_prio", "show priority-flow-control counters detail", answers.pfc_priorities),
    _Command("queues", "show interfaces counters queue", answers.queues),
    _Command("ecn", "show qos interfaces ecn counters queue", answers.ecn),
    _Command("lldp", "show lldp neighbors detail", answers.neighbours, slow=True),
    _Command("version", "show version", None, slow=True),
    _Command("hostname", "show hostname", None, slow=True),
)


class EapiTransport:
    """Asks switches over HTTPS, with the user and the password of each one's secret."""

    def __init__(self, settings: probe_input.ProbeSettings) -> None:
        self._interval_s = settings.interval_s
        self._sites = HttpClient()

    async def open(self, host: Host) -> ProbeSession:
        """A session with a switch. Raises BadSecret and BadTrust."""
        if host.secret is None:
            raise BadSecret("via=eapi needs secret=FILE, a file that holds user:password")
        secret = await asyncio.to_thread(access.read_secret, host.secret, _HOLDS)
        if ":" not in secret:
            raise BadSecret(f"{host.secret}: it must hold user:password, on one line")
        port = 80 if host.tls == "no" else PORT
        site = await api_server_of(host, port, basic(secret))
        poller = EapiPoller(self._sites, site, self._interval_s)
        return PolledSession(poller, host.name, self._interval_s)

    async def close(self) -> None:
        """Close the connections."""
        await self._sites.close()


class EapiPoller:
    """Asks one switch. Remembers what it does not have, and what changes slowly."""

    def __init__(self, sites: HttpClient, site: ApiServer, interval_s: float) -> None:
        self._sites = sites
        self._site = site
        self._every = max(1, round(_HELD_S / interval_s))
        self._slow_every = max(1, round(_SLOW_S / interval_s))
        self._clock = SampleClock(_HELD_S)
        self._slow_at_s = float("-inf")
        self._refused: dict[str, tuple[float, SourceFailure]] = {}
        self._empty: dict[str, SourceFailure] = {}
        self._parts: dict[str, SourceBlock] = {}
        self._about: dict[str, str] = {}
        self._booted_s = 0.0
        self._rest_until_s = 0.0
        self._took_ns = 0

    async def poll(self) -> NodeReading:
        """Ask for what is due; nothing at all while the switch rests.

        Raises NodeError when there is no answer about interfaces.
        """
        start_ns = time.monotonic_ns()
        # What is not asked for now keeps its place, without values.
        self._parts = {name: part._replace(values=None) for name, part in self._parts.items()}
        if start_ns / 1e9 >= self._rest_until_s:
            await self._read(start_ns / 1e9)
            self._took_ns = time.monotonic_ns() - start_ns
            self._rest_until_s = (start_ns + (1 + _REST) * self._took_ns) / 1e9
        parts = [*self._parts.values(), poll_duration(self._took_ns)]
        refused = {source: trouble for source, (_, trouble) in self._refused.items()}
        return NodeReading(parts, dict(self._about), {**self._empty, **refused})

    async def close(self) -> None:
        """Nothing is held."""

    async def _read(self, now_s: float) -> None:
        due = self._due(now_s)
        results = await self._ask(due)
        if _INTERFACES not in results:
            raise Unreachable(f"show interfaces: {self._refused[_INTERFACES][1].text}", "eapi")
        self._learn(results)
        self._take(due, results, time.monotonic_ns())

    def _due(self, now_s: float) -> list[_Command]:
        slow = now_s - self._slow_at_s >= _SLOW_S
        if slow:
            self._slow_at_s = now_s
        for source, (since_s, _) in list(self._refused.items()):
            if now_s - since_s >= _ASK_AGAIN_S or source == _INTERFACES:
                del self._refused[source]
        return [
            command
            for command in _COMMANDS
            if (slow or not command.slow) and command.source not in self._refused
        ]

    async def _ask(self, due: Sequence[_Command]) -> dict[str, Any]:
        """Each source's result. All at once first; when one of them is refused, one by one."""
        try:
            results = await self._run([command.text for command in due])
        except _Error:
            found = {}
            for command in due:
                try:
                    (found[command.source],) = await self._run([command.text])
                except _Error as error:
                    self._refused[command.source] = (time.monotonic(), error.trouble(command.text))
            return found
        return {command.source: item for command, item in zip(due, results, strict=True)}

    async def _run(self, commands: Sequence[str]) -> list[Any]:
        body = {
            "jsonrpc": "2.0",
            "id": "fabmon",
            "method": "runCmds",
            "params": {"version": 1, "cmds": list(commands), "format": "json"},
        }
        try:
            data = await self._sites.post(self._site, "/command-api", body, _DEADLINE_S)
        except HttpStatusError as error:
            if error.status != 404:
                raise
            fix = "is `management api http-commands` up on the switch?"
            raise Unreachable(f"{error}: {fix}", "eapi") from None
        reply = await asyncio.to_thread(_reply, data)
        if reply.error is not None:
            raise _Error(reply.error.code, _complaint(reply.error))
        if reply.result is None or len(reply.result) != len(commands):
            raise Misbehaved(f"{self._site.base}: {len(commands)} commands, other results")
        return reply.result

    def _take(self, due: Sequence[_Command], results: Mapping[str, Any], now_ns: int) -> None:
        """Turn what was said into parts."""
        for command in due:
            source = command.source
            if command.read is None:
                continue
            self._empty.pop(source, None)
            result = results.get(source)
            read = command.read(result if isinstance(result, dict) else {})
            if read.objects:
                self._parts[source] = self._part(command, read, now_ns)
                continue
            self._parts.pop(source, None)
            if source in results:
                self._empty[source] = SourceFailure(
                    "absent", f"{command.text}: nothing is told of there"
                )

    def _learn(self, results: Mapping[str, Any]) -> None:
        """Take in the switch's name, model and boot."""
        version = results.get("version")
        if isinstance(version, dict):
            booted_s = version.get("bootupTimestamp")
            if isinstance(booted_s, (int, float)) and abs(booted_s - self._booted_s) > _REBOOT_S:
                self._booted_s = float(booted_s)
                self._clock = SampleClock(_HELD_S)
                self._about["boot_id"] = f"{version.get('serialNumber', '')}@{booted_s:.0f}"
            words = ("EOS", version.get("version", ""), version.get("modelName", ""))
            self._about["kernel"] = " ".join(str(word) for word in words if word)
        hostname = results.get("hostname")
        if isinstance(hostname, dict) and hostname.get("hostname"):
            self._about["hostname"] = str(hostname["hostname"])

    def _part(self, command: _Command, read: ShowResult, now_ns: int) -> SourceBlock:
        clock_ns: int | None = now_ns
        if read.refreshed_ns is not None:
            clock_ns = self._clock.at(read.refreshed_ns, now_ns)
        every = self._slow_every if command.slow else self._every
        values = None if clock_ns is None else read.values
        return SourceBlock(command.source, read.objects, values, clock_ns or now_ns, every)


class _Error(Exception):
    """The switch refused a request."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self._code = code
        self._text = text

    def trouble(self, command: str) -> SourceFailure:
        """1002 is a command that is not there, 1003 one without JSON, 1005 one not permitted."""
        reasons = {1002: "unsupported", 1003: "unsupported", 1005: "denied"}
        reason = reasons.get(self._code, "failed")
        if any(word in self._text.lower() for word in ("privilege", "authorization", "permission")):
            reason = "denied"
        return SourceFailure(reason, f"{command}: {self._text}")


class _RpcError(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: list[Any] | None = None


class _Reply(msgspec.Struct):
    result: list[Any] | None = None
    error: _RpcError | None = None


_DECODER = msgspec.json.Decoder(_Reply)


def _reply(data: bytes) -> _Reply:
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Misbehaved(f"not an answer of eAPI: {error}") from None


def _complaint(error: _RpcError) -> str:
    """What the switch says of the command that failed; its own words, without the whole message."""
    for item in reversed(error.data or []):
        if isinstance(item, dict) and item.get("errors"):
            return "; ".join(map(str, item["errors"]))
    return error.message or f"error {error.code}"
