"""The TCP connection under SSH, made by ourselves so that the reason is true when it fails."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, NamedTuple

import asyncssh

from fabmon.feeds.errors import NodeError, Unreachable
from fabmon.feeds.transports import ssh_login
from fabmon.feeds.transports.ssh_login import LoginObserver

_CAUSES = {
    errno.ECONNREFUSED: ("connection refused by", "refused"),
    errno.ENETUNREACH: ("no route to", "no route"),
    errno.EHOSTUNREACH: ("no route to", "no route"),
    errno.ETIMEDOUT: ("no answer to the TCP connection from", "timeout"),
    errno.EMFILE: ("too many open files (raise ulimit -n) to reach", "files"),
}


async def connect(
    host: str,
    port: int,
    *,
    family: int,
    source: str | None,
    timeout_s: float,
    resolver: Executor,
) -> socket.socket:
    """A connected socket, to the first address of `host` that answers. Raises Unreachable.

    `timeout_s` is for all addresses together. Names are looked up in `resolver`: a dead name server
    must not take the threads that others need.
    """
    problem = Unreachable(f"no address to try for {host}")
    try:
        async with asyncio.timeout(timeout_s):
            for address_family, address in await _resolve(host, port, family, resolver):
                try:
                    return await _try(address_family, address, source)
                except OSError as error:
                    problem = _explain(error, host, address)
    except TimeoutError:
        where = f"{host}:{port}"
        raise Unreachable(
            f"no answer to the TCP connection to {where} in {timeout_s:g} s", "timeout"
        ) from None
    raise problem


async def _resolve(
    host: str, port: int, family: int, resolver: Executor
) -> list[tuple[int, tuple[Any, ...]]]:
    def look_up() -> list[tuple[int, tuple[Any, ...]]]:
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
        return [(info[0], info[4]) for info in found]

    try:
        return await asyncio.get_running_loop().run_in_executor(resolver, look_up)
    except (OSError, UnicodeError) as error:
        words = error.strerror if isinstance(error, OSError) else None
        raise Unreachable(f"no address for {host}: {words or error}", "unknown name") from None


async def _try(family: int, address: tuple[Any, ...], source: str | None) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        if source is not None:
            connection.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


def _explain(error: OSError, host: str, address: tuple[Any, ...]) -> Unreachable:
    where = (
        f"[{address[0]}]:{address[1]}" if ":" in str(address[0]) else f"{address[0]}:{address[1]}"
    )
    if host != address[0]:
        where = f"{host} ({where})"
    words, cause = _CAUSES.get(error.errno or 0, ("", "unreachable"))
    return Unreachable(f"{words} {where}" if words else f"{where}: {error.strerror}", cause)


# Jump hosts: one connection each, however many nodes are behind it.


_REMEMBER_FAILURE_S = 5.0

DialHop = Callable[
    [str, asyncssh.SSHClientConnection | None, tuple[str, ...]],
    Awaitable[asyncssh.SSHClientConnection],
]
"""Logs in to `user@host:port`, through a connection or directly; the last are the jumps so far."""


class JumpConnections:
    """Connections to jump hosts by the way to them. A failure holds for all who ask within 5 s."""

    def __init__(self, dial_hop: DialHop) -> None:
        self._dial_hop = dial_hop
        self._open: dict[str, asyncio.Task[asyncssh.SSHClientConnection]] = {}
        self._failed: dict[str, tuple[float, NodeError]] = {}

    async def through(self, way: str, seen: tuple[str, ...]) -> asyncssh.SSHClientConnection:
        """The connection to the last of `way`, hops separated by commas as in ProxyJump.

        Raises NodeError that names the jump host in trouble.
        """
        if way in seen:
            raise Unreachable(f"ProxyJump {way} leads back to itself", "ssh config")
        connection: asyncssh.SSHClientConnection | None = None
        hops = [hop.strip() for hop in way.split(",") if hop.strip()]
        for index, hop in enumerate(hops):
            key = ",".join(hops[: index + 1])
            connection = await self._shared(key, hop, connection, (*seen, way))
        if connection is None:
            raise Unreachable(f"ProxyJump {way!r} names no host", "ssh config")
        return connection

    async def close(self) -> None:
        """Close them all."""
        for task in self._open.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().abort()
            task.cancel()
        await asyncio.gather(*self._open.values(), return_exceptions=True)
        self._open.clear()

    async def _shared(
        self,
        key: str,
        hop: str,
        through: asyncssh.SSHClientConnection | None,
        seen: tuple[str, ...],
    ) -> asyncssh.SSHClientConnection:
        loop = asyncio.get_running_loop()
        failed_at, failure = self._failed.get(key, (0.0, None))
        if failure is not None and loop.time() - failed_at < _REMEMBER_FAILURE_S:
            raise type(failure)(str(failure), failure.cause)
        task = self._open.get(key)
        if task is None or _is_over(task):
            task = loop.create_task(self._connect(key, hop, through, seen))
            self._open[key] = task
        # One node that is given up must not take the connection from the others.
        return await asyncio.shield(task)

    async def _connect(
        self,
        key: str,
        hop: str,
        through: asyncssh.SSHClientConnection | None,
        seen: tuple[str, ...],
    ) -> asyncssh.SSHClientConnection:
        try:
            return await self._dial_hop(hop, through, seen)
        except NodeError as error:
            failure = type(error)(f"jump host {hop}: {error}", error.cause)
            self._failed[key] = (asyncio.get_running_loop().time(), failure)
            raise failure from None


def _is_over(task: asyncio.Task[asyncssh.SSHClientConnection]) -> bool:
    if not task.done():
        return False
    with contextlib.suppress(NodeError, asyncio.CancelledError):
        return task.result().is_closed()
    return True


# From an address to a logged-in SSH connection, by ssh_config, directly or through jump hosts.


_USER_CONFIG = "~/.ssh/config"
_GLOBAL_CONFIG = "/etc/ssh/ssh_config"
_KEEPALIVE_S = 5.0
_RESOLVERS = 32

# Its lines per packet and per connection are not for the reader of fabmon's log.
logging.getLogger("asyncssh").setLevel(logging.ERROR)


class SshTarget(NamedTuple):
    """Where to log in; None leaves a value to ssh_config."""

    address: str
    user: str | None = None
    port: int | None = None


class SshTimeouts(NamedTuple):
    """Seconds: to a TCP connection, then to the key exchange, then to the end of the login."""

    connect_s: float = 10.0
    silence_s: float = 10.0
    login_s: float = 20.0


class Dialer:
    """Logs in. Shares jump connections, parsed known_hosts and threads between all targets.

    `config` is the ssh_config file to read instead of the user's and the system's. Host keys are
    always checked, the agent is never forwarded, whatever the file says.
    """

    def __init__(self, config: str | None, timeouts: SshTimeouts) -> None:
        self._config = [config] if config is not None else _default_config()
        self._timeouts = timeouts
        self._known_hosts = ssh_login.KnownHosts()
        self._resolver = ThreadPoolExecutor(_RESOLVERS, "fabmon-resolve")
        self._reader = ThreadPoolExecutor(2, "fabmon-ssh-config")
        self._jumps = JumpConnections(self._dial_hop)

    async def dial(self, target: SshTarget) -> asyncssh.SSHClientConnection:
        """A connection that is logged in. Raises NodeError."""
        return await self._dial(target, None, ())

    async def close(self) -> None:
        """Close the jump connections and let the threads go."""
        await self._jumps.close()
        self._resolver.shutdown(wait=False, cancel_futures=True)
        self._reader.shutdown(wait=False, cancel_futures=True)

    async def _dial_hop(
        self, hop: str, tunnel: asyncssh.SSHClientConnection | None, seen: tuple[str, ...]
    ) -> asyncssh.SSHClientConnection:
        return await self._dial(_parse_hop(hop), tunnel, seen)

    async def _dial(
        self,
        target: SshTarget,
        tunnel: asyncssh.SSHClientConnection | None,
        seen: tuple[str, ...],
    ) -> asyncssh.SSHClientConnection:
        options, known, files = await self._read(target)
        jump = str(options.tunnel or "")
        if tunnel is None and jump and jump not in seen:
            tunnel = await self._jumps.through(jump, seen)
        elif tunnel is None:
            # A jump host that `Host *` sends through itself is reached directly.
            jump = ""
        try:
            async with asyncio.timeout(None) as limit:
                watcher = LoginObserver(
                    where=f"{options.host}:{options.port}",
                    jump=jump,
                    known=known,
                    files=files,
                    has_keys=bool(options.client_keys),
                    limit=limit,
                    silence_s=self._timeouts.silence_s,
                    login_s=self._timeouts.login_s,
                )
                connected = await self._tcp(options) if _is_direct(options, tunnel) else None
                limit.reschedule(asyncio.get_running_loop().time() + self._timeouts.silence_s)
                return await self._login(target, options, known, tunnel, connected, watcher)
        except NodeError:
            raise
        except (asyncssh.Error, OSError, ValueError) as error:
            raise watcher.explain(error, options.host, options.port) from None

    async def _read(
        self, target: SshTarget
    ) -> tuple[asyncssh.SSHClientConnectionOptions, asyncssh.SSHKnownHosts, list[str]]:
        """What ssh_config says of a target, and the host keys that hold for it."""
        read: Callable[[], asyncssh.SSHClientConnectionOptions] = functools.partial(
            asyncssh.SSHClientConnectionOptions,
            config=self._config,
            host=target.address,
            port=target.port if target.port is not None else (),
            username=target.user if target.user is not None else (),
        )

        def read_all() -> tuple[
            asyncssh.SSHClientConnectionOptions, asyncssh.SSHKnownHosts, list[str]
        ]:
            options = read()
            files = ssh_login.files_of(options.known_hosts)
            return options, self._known_hosts.load(files), files

        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, read_all)
        except (asyncssh.Error, OSError, ValueError) as error:
            raise Unreachable(
                f"ssh_config or keys of {target.address}: {error}", "ssh config"
            ) from None

    async def _tcp(self, options: asyncssh.SSHClientConnectionOptions) -> socket.socket:
        return await connect(
            options.host,
            options.port,
            family=options.family,
            source=str(options.local_addr[0]) if options.local_addr else None,
            timeout_s=self._timeouts.connect_s,
            resolver=self._resolver,
        )

    async def _login(
        self,
        target: SshTarget,
        options: asyncssh.SSHClientConnectionOptions,
        known: asyncssh.SSHKnownHosts,
        tunnel: asyncssh.SSHClientConnection | None,
        connected: socket.socket | None,
        watcher: LoginObserver,
    ) -> asyncssh.SSHClientConnection:
        try:
            return await asyncssh.connect(
                target.address,
                options.port,
                options=options,
                sock=connected,
                tunnel=tunnel,
                client_factory=lambda: watcher,
                known_hosts=known,
                agent_forwarding=False,
                compression_algs=None,
                connect_timeout=None,
                login_timeout=0,
                keepalive_interval=options.keepalive_interval or _KEEPALIVE_S,
            )
        except BaseException:
            if connected is not None:
                connected.close()
            raise


def _is_direct(
    options: asyncssh.SSHClientConnectionOptions, tunnel: asyncssh.SSHClientConnection | None
) -> bool:
    return tunnel is None and not options.proxy_command


def _parse_hop(hop: str) -> SshTarget:
    user, _, place = hop.rpartition("@")
    address, colon, port = place.rpartition(":")
    if not colon or not port.isdigit() or (":" in address and not address.endswith("]")):
        address, port = place, ""
    return SshTarget(address.strip("[]"), user or None, int(port) if port else None)


def _default_config() -> list[str]:
    """The user's file, then the system's, where the first value of an option wins, as in ssh."""
    found = []
    for name in (_USER_CONFIG, _GLOBAL_CONFIG):
        path = os.path.expanduser(name)  # noqa: PTH111
        with contextlib.suppress(OSError), open(path, "rb"):  # noqa: PTH123
            found.append(path)
    return found
