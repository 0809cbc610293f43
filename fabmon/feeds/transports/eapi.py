"""Arista switches polled over eAPI: show commands as JSON-RPC over HTTPS.

EOS: `management api http-commands`, `no shutdown`. An account of privilege 1 is enough; nothing is
configured or cleared. A command that a platform lacks affects only its own source.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fabmon.fabric.model import Host
from fabmon.feeds.access import read_secret
from fabmon.feeds.errors import BadSecret, Misbehaved, Unreachable
from fabmon.feeds.http_client import ApiServer, HttpClient, HttpStatusError, basic_authorization
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.token_bucket import TokenBucket, in_thread
from fabmon.feeds.transports import eapi_show
from fabmon.feeds.transports.eapi_show import ShowResult
from fabmon.feeds.transports.polled import (
    PacedPoller,
    PolledSession,
    PolledTransport,
    SampleClock,
    SourceBlock,
    SourceFailure,
    decode_reply,
    newest_change,
)
from fabmon.feeds.transports.transport import ProbeSession
from fabmon.secret_files import secrets_in, without_secrets

_HTTPS_PORT = 443
_HTTP_PORT = 80
_DEADLINE_S = 15.0
"""A large chassis takes seconds to write `show interfaces`."""

_CONNECTIONS_PER_SWITCH = 4

_SLOW_S = 60.0
"""Seconds between two reads of what rarely changes: neighbours, version, name."""

_MOST_OBJECTS = 16_384
"""Entries of one command: interfaces, or neighbours, of a chassis are some thousands."""

_RETRY_S = 600.0
"""Seconds after which a command that the switch rejected is tried again."""

_REFRESH_S = 10.0
"""Longest time between two counter refreshes on EOS; a rate is shown for 2.5 times this long
without a new sample."""

_REBOOT_S = 120.0
"""Boot times that differ by less are the same boot, computed from a clock that was adjusted."""


class _Command(NamedTuple):
    source: str
    text: str
    read: Callable[[Any], ShowResult] | None
    slow: bool = False


_INTERFACES = "interfaces"

_COMMANDS = (
    _Command(_INTERFACES, "show interfaces", eapi_show.interfaces),
    _Command("pfc", "show priority-flow-control counters", eapi_show.pfc),
    _Command("pfc_prio", "show priority-flow-control counters detail", eapi_show.pfc_priorities),
    _Command("queues", "show interfaces counters queue", eapi_show.queues),
    _Command("ecn", "show qos interfaces ecn counters queue", eapi_show.ecn),
    _Command("lldp", "show lldp neighbors detail", eapi_show.neighbours, slow=True),
    _Command("version", "show version", None, slow=True),
    _Command("hostname", "show hostname", None, slow=True),
)


class EapiTransport(PolledTransport):
    """Polls switches over HTTPS, with the user and password in each one's secret file."""

    def __init__(self, settings: ProbeSettings) -> None:
        super().__init__(settings, HttpClient(per_server=_CONNECTIONS_PER_SWITCH))

    async def open(self, host: Host) -> ProbeSession:
        """A session with a switch. Raises BadSecret, BadTrust, and Misbehaved where the last
        session used up the CPU time of the node."""
        cpu = self._budgets.of(host.name)
        if host.secret is None:
            raise BadSecret("via=eapi needs secret=FILE, a file that holds user:password")
        hint = "secret= is a file with user:password"
        secret = await asyncio.to_thread(read_secret, host.secret, hint)
        if ":" not in secret:
            raise BadSecret(f"{host.secret}: it must hold user:password, on one line")
        port = host.port or (_HTTP_PORT if host.tls == "no" else _HTTPS_PORT)
        server = await self._client.server(
            host, port, host.tls or "yes", basic_authorization(secret)
        )
        poller = EapiPoller(self._client, server, self._interval_s, cpu)
        return PolledSession(poller, host.name, self._interval_s)


class EapiPoller(PacedPoller):
    """Polls one switch. Commands that it rejects, and slow ones, are sent less often."""

    def __init__(
        self, client: HttpClient, server: ApiServer, interval_s: float, cpu: TokenBucket
    ) -> None:
        super().__init__(cpu)
        self._client = client
        self._server = server
        self._every = max(1, round(_REFRESH_S / interval_s))
        self._slow_every = max(1, round(_SLOW_S / interval_s))
        self._clock = SampleClock(_REFRESH_S)
        self._refreshed_ns: Mapping[str, int] = {}
        self._slow_at_s = float("-inf")
        self._rejected: dict[str, tuple[float, SourceFailure]] = {}
        self._empty: dict[str, SourceFailure] = {}
        self._booted_s = 0.0

    async def read(self, now_s: float) -> None:
        """Send the commands that are due. Raises NodeError when there are no interfaces."""
        due = self._due(now_s)
        results = await self._results(due)
        if _INTERFACES not in results:
            raise Unreachable(self._rejected[_INTERFACES][1].text, "eapi")
        self._read_identity(results)
        now_ns = time.monotonic_ns()
        # A large chassis takes tenths of a second: beside the screen.
        shown = await in_thread(self.cpu, _shown, due, results)
        for command in due:
            if command.source in shown:
                self._take(command, shown[command.source], command.source in results, now_ns)

    def failures(self) -> dict[str, SourceFailure]:
        """The commands that the switch rejected or that have no data."""
        return {
            **self._empty,
            **{source: failure for source, (_, failure) in self._rejected.items()},
        }

    def _due(self, now_s: float) -> list[_Command]:
        slow = now_s - self._slow_at_s >= _SLOW_S
        if slow:
            self._slow_at_s = now_s
        for source, (since_s, _) in list(self._rejected.items()):
            if now_s - since_s >= _RETRY_S or source == _INTERFACES:
                del self._rejected[source]
        return [
            command
            for command in _COMMANDS
            if (slow or not command.slow) and command.source not in self._rejected
        ]

    async def _results(self, due: Sequence[_Command]) -> dict[str, Any]:
        """The result by source. All commands in one request; if that is rejected, one by one."""
        try:
            results = await self._run([command.text for command in due])
        except _CommandError:
            found = {}
            for command in due:
                try:
                    (found[command.source],) = await self._run([command.text])
                except _CommandError as error:
                    failure = error.failure(command.text)
                    self._rejected[command.source] = (time.monotonic(), failure)
            return found
        return {command.source: item for command, item in zip(due, results, strict=True)}

    async def _run(self, commands: Sequence[str]) -> list[Any]:
        request = {
            "jsonrpc": "2.0",
            "id": "fabmon",
            "method": "runCmds",
            "params": {"version": 1, "cmds": list(commands), "format": "json"},
        }
        try:
            body, _ = await self._client.fetch(
                self._server, "/command-api", _DEADLINE_S, json=request
            )
        except HttpStatusError as error:
            if error.status != 404:
                raise
            fix = "enable `management api http-commands` on the switch"
            raise Unreachable(f"{error}: {fix}", "eapi") from None
        what = f"{self._server.base}: eAPI"
        reply = await in_thread(self.cpu, decode_reply, body, _Reply, what)
        if reply.error is not None:
            raise _CommandError(reply.error, secrets_in(self._server.authorization))
        if reply.result is None or len(reply.result) != len(commands):
            raise Misbehaved(
                f"{self._server.base}: the results do not match the {len(commands)} commands sent"
            )
        return reply.result

    def _take(self, command: _Command, shown: ShowResult, has_result: bool, now_ns: int) -> None:
        source = command.source
        if len(shown.objects) > _MOST_OBJECTS:
            raise Misbehaved(f"{command.text}: more than {_MOST_OBJECTS:,} entries")
        self._empty.pop(source, None)
        if shown.objects:
            self.blocks[source] = self._block(command, shown, now_ns)
            return
        self.blocks.pop(source, None)
        if has_result:
            reason, why = ("failed", shown.limits[0]) if shown.limits else ("absent", "no data")
            self._empty[source] = SourceFailure(reason, f"{command.text}: {why}")

    def _read_identity(self, results: Mapping[str, Any]) -> None:
        """Take over the name, model and boot time of the switch."""
        version = results.get("version")
        if isinstance(version, dict):
            booted_s = version.get("bootupTimestamp")
            if isinstance(booted_s, (int, float)) and abs(booted_s - self._booted_s) > _REBOOT_S:
                self._booted_s = float(booted_s)
                self._clock = SampleClock(_REFRESH_S)
                self.about["boot_id"] = f"{version.get('serialNumber', '')}@{booted_s:.0f}"
            words = ("EOS", version.get("version", ""), version.get("modelName", ""))
            self.about["kernel"] = " ".join(str(word) for word in words if word)
        hostname = results.get("hostname")
        if isinstance(hostname, dict) and hostname.get("hostname"):
            self.about["hostname"] = str(hostname["hostname"])

    def _block(self, command: _Command, shown: ShowResult, now_ns: int) -> SourceBlock:
        clock_ns: int | None = now_ns
        if shown.refreshed_ns:
            newest_ns = newest_change(self._refreshed_ns, shown.refreshed_ns)
            clock_ns = None if newest_ns is None else self._clock.at(newest_ns, now_ns)
            self._refreshed_ns = shown.refreshed_ns
        every = self._slow_every if command.slow else self._every
        values = None if clock_ns is None else shown.values
        return SourceBlock(
            command.source,
            shown.objects,
            values,
            clock_ns or now_ns,
            every,
            shown.coverage,
            shown.limits,
        )


def _shown(due: Sequence[_Command], results: Mapping[str, Any]) -> dict[str, ShowResult]:
    """The objects of each command that has some, by source."""
    objects = {source: each for source, each in results.items() if isinstance(each, dict)}
    return {
        each.source: each.read(objects.get(each.source, {}))
        for each in due
        if each.read is not None
    }


class _RpcError(msgspec.Struct):
    code: int = 0
    message: str = ""
    data: list[Any] | None = None


class _Reply(msgspec.Struct):
    result: list[Any] | None = None
    error: _RpcError | None = None


class _CommandError(Exception):
    """The switch rejected a request."""

    def __init__(self, error: _RpcError, secrets: Sequence[str]) -> None:
        self._code = error.code
        self._text = error.message or f"error {error.code}"
        # The entry of the command that failed has its errors; the message repeats all commands.
        for item in reversed(error.data or []):
            if isinstance(item, dict) and item.get("errors"):
                self._text = "; ".join(map(str, item["errors"]))
                break
        self._text = without_secrets(self._text, secrets)
        super().__init__(self._text)

    def failure(self, command: str) -> SourceFailure:
        """1002 is a command that does not exist, 1003 one without JSON, 1005 one not permitted."""
        reasons = {1002: "unsupported", 1003: "unsupported", 1005: "denied"}
        reason = reasons.get(self._code, "failed")
        if any(word in self._text.lower() for word in ("privilege", "authorization", "permission")):
            reason = "denied"
        return SourceFailure(reason, f"{command}: {self._text}")
