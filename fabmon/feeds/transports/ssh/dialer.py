"""From an address to a logged-in SSH connection, by ssh_config, directly or through jump hosts."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import asyncssh

from fabmon.feeds.errors import NodeError, Unreachable
from fabmon.feeds.transports.ssh import keys, tcp
from fabmon.feeds.transports.ssh.jumps import Jumps
from fabmon.feeds.transports.ssh.watcher import Watcher

_USER_CONFIG = "~/.ssh/config"
_GLOBAL_CONFIG = "/etc/ssh/ssh_config"
_KEEPALIVE_S = 5.0
_RESOLVERS = 32

# Its lines per packet and per connection are not for the reader of fabmon's log.
logging.getLogger("asyncssh").setLevel(logging.ERROR)


class Target(NamedTuple):
    """Where to log in; None leaves a value to ssh_config."""

    address: str
    user: str | None = None
    port: int | None = None


class Timeouts(NamedTuple):
    """Seconds: to a TCP connection, then to the key exchange, then to the end of the login."""

    connect_s: float = 10.0
    silence_s: float = 10.0
    login_s: float = 20.0


class Dialer:
    """Logs in. Shares jump connections, parsed known_hosts and threads between all targets.

    `config` is the ssh_config file to read instead of the user's and the system's. Host keys are
    always checked, the agent is never forwarded, whatever the file says.
    """

    def __init__(self, config: str | None, timeouts: Timeouts) -> None:
        self._config = [config] if config is not None else _default_config()
        self._timeouts = timeouts
        self._known_hosts = keys.KnownHosts()
        self._resolver = ThreadPoolExecutor(_RESOLVERS, "fabmon-resolve")
        self._reader = ThreadPoolExecutor(2, "fabmon-ssh-config")
        self._jumps = Jumps(self._dial_hop)

    async def dial(self, target: Target) -> asyncssh.SSHClientConnection:
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
        target: Target,
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
                watcher = Watcher(
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
        self, target: Target
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
            files = keys.files_of(options.known_hosts)
            return options, self._known_hosts.load(files), files

        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, read_all)
        except (asyncssh.Error, OSError, ValueError) as error:
            raise Unreachable(
                f"ssh_config or keys of {target.address}: {error}", "ssh config"
            ) from None

    async def _tcp(self, options: asyncssh.SSHClientConnectionOptions) -> socket.socket:
        return await tcp.connect(
            options.host,
            options.port,
            family=options.family,
            source=str(options.local_addr[0]) if options.local_addr else None,
            timeout_s=self._timeouts.connect_s,
            resolver=self._resolver,
        )

    async def _login(
        self,
        target: Target,
        options: asyncssh.SSHClientConnectionOptions,
        known: asyncssh.SSHKnownHosts,
        tunnel: asyncssh.SSHClientConnection | None,
        connected: socket.socket | None,
        watcher: Watcher,
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


def _parse_hop(hop: str) -> Target:
    user, _, place = hop.rpartition("@")
    address, colon, port = place.rpartition(":")
    if not colon or not port.isdigit() or (":" in address and not address.endswith("]")):
        address, port = place, ""
    return Target(address.strip("[]"), user or None, int(port) if port else None)


def _default_config() -> list[str]:
    """The user's file, then the system's, where the first value of an option wins, as in ssh."""
    found = []
    for name in (_USER_CONFIG, _GLOBAL_CONFIG):
        path = os.path.expanduser(name)  # noqa: PTH111
        with contextlib.suppress(OSError), open(path, "rb"):  # noqa: PTH123
            found.append(path)
    return found
