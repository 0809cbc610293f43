"""Logged-in SSH connections: ssh_config, name lookup, TCP, jump hosts, login.

The TCP connection is made here and not by asyncssh, so that the error names the exact cause.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, NamedTuple

import asyncssh

from fabmon.fabric.time_wording import interval
from fabmon.feeds.errors import LoginRefused, NodeError, Unreachable, connect_error, with_check
from fabmon.feeds.log_digest import SSH_LOG
from fabmon.feeds.token_bucket import CpuBudgets
from fabmon.feeds.transports.ssh_credentials import Credentials, State, config_files
from fabmon.feeds.transports.ssh_identities import Identities, KeyFiles
from fabmon.feeds.transports.ssh_known_hosts import AcceptCommand, KnownHosts, TrustedKeys
from fabmon.feeds.transports.ssh_login import LoginObserver, SshTimeouts, misconduct

_KEEPALIVE_S = 5.0
_CONFIGURATION_S = 60.0
"""Seconds to read ssh_config, which may run commands, known_hosts and keys, of all nodes that are
connected to at a time: after that a file system hangs."""

_RESOLVER_THREADS = 32
_JUMP_FAILURE_S = 5.0
"""Seconds for which a failed login to a jump host counts for all nodes behind it."""

_JUMP_REFUSAL_S = 900.0
"""The same for a refused login, unless keys or ssh_config change: sites ban after many attempts."""

# asyncssh logs each packet and each connection, which does not belong into fabmon's log.
logging.getLogger("asyncssh").setLevel(logging.ERROR)
_LOG = logging.getLogger(SSH_LOG)

Connection = asyncssh.SSHClientConnection


class SshTarget(NamedTuple):
    """Where to log in; None leaves a value to ssh_config."""

    address: str
    user: str | None = None
    port: int | None = None


class _FailedJump(NamedTuple):
    """When the login to a jump host failed, how, and with which credentials."""

    at_s: float
    error: NodeError
    credentials: State


Configuration = tuple[asyncssh.SSHClientConnectionOptions, TrustedKeys, Identities]


class Dialer:
    """Logs in. All targets share jump connections, parsed known_hosts files and threads.

    `config` is the ssh_config file to read instead of the user's and the system's. Whatever it
    says, host keys are always checked and the agent is never forwarded.
    """

    def __init__(self, config: str | None, timeouts: SshTimeouts) -> None:
        self._named_config = config
        self._config = config_files(config)
        self._timeouts = timeouts
        self._known_hosts = KnownHosts()
        self._key_files = KeyFiles()
        self._skipped: set[str] = set()
        # Name lookups have threads of their own: a dead name server would occupy all others.
        self._resolver = ThreadPoolExecutor(_RESOLVER_THREADS, "fabmon-resolve")
        self._reader = ThreadPoolExecutor(2, "fabmon-ssh-config")
        self._jumps: dict[str, asyncio.Task[Connection]] = {}
        self._failed_jumps: dict[str, _FailedJump] = {}
        self._readings: dict[SshTarget, asyncio.Future[Configuration]] = {}
        self._credentials = Credentials(self._config, self._reader)
        self._budgets = CpuBudgets()

    async def dial(self, target: SshTarget) -> Connection:
        """A connection that is logged in. Raises NodeError."""
        return await self._dial(target, None, ())

    async def close(self) -> None:
        """Close the connections to jump hosts and end the threads."""
        for task in self._jumps.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().abort()
            task.cancel()
        await asyncio.gather(*self._jumps.values(), return_exceptions=True)
        self._jumps.clear()
        self._resolver.shutdown(wait=False, cancel_futures=True)
        self._reader.shutdown(wait=False, cancel_futures=True)

    async def _dial(
        self, target: SshTarget, tunnel: Connection | None, seen: tuple[str, ...], via: str = ""
    ) -> Connection:
        """Log in through `tunnel`, which is at the jump hosts `via`, or as ssh_config says. `seen`
        are the ProxyJumps so far."""
        try:
            async with asyncio.timeout(_CONFIGURATION_S):
                options, trusted, identities = await self._configuration(target)
                self._credentials.note(options, identities.agent)
                credentials = await self._credentials.state()
        except TimeoutError:
            within = interval(_CONFIGURATION_S)
            text = f"ssh_config, known_hosts and keys were not read in {within}: is ~ available?"
            raise Unreachable(text, "ssh config") from None
        jump = str(options.tunnel or "")
        if tunnel is None and jump and jump not in seen:
            tunnel = await self._through(jump, seen)
        elif tunnel is None:
            # ssh_config may send a jump host through itself (`Host *`): it is reached directly.
            jump = ""
        else:
            jump = via
        held = credentials.get(identities.agent or "", ())
        agent_keys = held if isinstance(held, tuple) else ()
        self._say_skipped(identities, agent_keys)
        accept = AcceptCommand(
            target=f"{target.user}@{target.address}" if target.user else target.address,
            host=options.host,
            port=options.port,
            alias=options.host_key_alias or "",
            config=self._named_config or "",
            jump=jump,
            is_scannable=not (jump or options.proxy_command),
        )
        where = f"{options.host}:{options.port}"
        cpu = self._budgets.of(where)
        try:
            async with asyncio.timeout(None) as limit:
                observer = LoginObserver(
                    where=where,
                    trusted=trusted,
                    accept=accept,
                    proxy=str(options.proxy_command[0]) if options.proxy_command else "",
                    identities=identities,
                    agent_keys=agent_keys,
                    limit=limit,
                    timeouts=self._timeouts,
                    cpu=cpu,
                    is_jump=bool(seen),
                )
                is_direct = tunnel is None and not options.proxy_command
                connected = await self._connect_tcp(options) if is_direct else None
                limit.reschedule(asyncio.get_running_loop().time() + self._timeouts.silence_s)
                try:
                    connection = await asyncssh.connect(
                        target.address,
                        options.port,
                        options=options,
                        sock=connected,
                        tunnel=tunnel,
                        client_factory=lambda: observer,
                        known_hosts=trusted.entries,
                        # An empty list would stand for the usual key files.
                        client_keys=[each.path for each in identities.files] or iter(()),
                        client_certs=list(identities.certificates),
                        agent_path=identities.agent,
                        agent_identities=identities.agent_keys,
                        agent_forwarding=False,
                        compression_algs=None,
                        encryption_algs=_ciphers(options.encryption_algs),
                        connect_timeout=None,
                        login_timeout=0,
                        keepalive_interval=options.keepalive_interval or _KEEPALIVE_S,
                    )
                except BaseException:
                    if connected is not None:
                        connected.close()
                    raise
            # asyncssh takes one that was closed here for one that is logged in.
            if (cause := misconduct(connection)) is not None:
                raise cause
            return connection
        except NodeError:
            raise
        except (asyncssh.Error, OSError, ValueError) as error:
            failure = observer.error(error, options.host, options.port)
            if isinstance(failure, LoginRefused):
                failure.until_changed = partial(self._credentials.until_changed, credentials)
            raise failure from None

    async def _configuration(self, target: SshTarget) -> Configuration:
        """What `_read_config` returns; one that still waits for a file system is not repeated."""
        reading = self._readings.get(target)
        if reading is None or reading.done():
            loop = asyncio.get_running_loop()
            reading = loop.run_in_executor(self._reader, self._read_config, target)
            self._readings[target] = reading
        return await asyncio.shield(reading)

    def _read_config(self, target: SshTarget) -> Configuration:
        """The options of ssh_config for a target, its trusted keys, and the keys to log in with.
        Blocks: it reads files."""
        try:
            options = asyncssh.SSHClientConnectionOptions(
                config=self._config,
                host=target.address,
                port=target.port if target.port is not None else (),
                username=target.user if target.user is not None else (),
                client_keys=None,
            )
            trusted = self._known_hosts.load(options.config)
            return options, trusted, self._key_files.identities(options.config)
        except (asyncssh.Error, OSError, ValueError, RecursionError) as error:
            why = "Include leads back to itself" if isinstance(error, RecursionError) else error
            text = f"ssh_config of {target.address}: {why}"
            raise Unreachable(text, "ssh config") from None

    def _say_skipped(self, identities: Identities, agent_keys: Sequence[bytes]) -> None:
        """Log each key file that ssh_config names and no login can use, once."""
        if not identities.is_configured:
            return
        for why in identities.ways_out(agent_keys):
            if why not in self._skipped:
                self._skipped.add(why)
                _LOG.warning("an IdentityFile of ssh_config is skipped: %s", why)

    async def _through(self, route: str, seen: tuple[str, ...]) -> Connection:
        """The shared connection to the last hop of `route`, which is a value of ProxyJump.

        Raises NodeError that names the jump host that failed.
        """
        if route in seen:
            raise Unreachable(f"ProxyJump {route} leads back to itself", "ssh config")
        connection: Connection | None = None
        hops = [hop.strip() for hop in route.split(",") if hop.strip()]
        loop = asyncio.get_running_loop()
        for index, hop in enumerate(hops):
            key = ",".join(hops[: index + 1])
            failed = self._failed_jumps.get(key)
            if failed is not None and await self._fails_again(failed):
                raise _copy(failed.error, str(failed.error))
            task = self._jumps.get(key)
            if task is None or _is_over(task):
                via = ",".join(hops[:index])
                task = loop.create_task(self._dial_hop(key, hop, connection, (*seen, route), via))
                self._jumps[key] = task
            # Cancelling the login of one node must not end the connection of the others.
            connection = await asyncio.shield(task)
        if connection is None:
            raise Unreachable(f"ProxyJump {route!r} names no host", "ssh config")
        return connection

    async def _dial_hop(
        self, key: str, hop: str, tunnel: Connection | None, seen: tuple[str, ...], via: str
    ) -> Connection:
        try:
            return await self._dial(_parse_hop(hop), tunnel, seen, via)
        except NodeError as error:
            failure = _copy(error, f"jump host {hop}: {error}")
            credentials = await self._credentials.state()
            now_s = asyncio.get_running_loop().time()
            self._failed_jumps[key] = _FailedJump(now_s, failure, credentials)
            if isinstance(failure, LoginRefused):
                failure.forget = partial(self._failed_jumps.pop, key, None)
            raise failure from None

    async def _fails_again(self, failed: _FailedJump) -> bool:
        """Whether a login to a jump host would fail as the last one did."""
        age_s = asyncio.get_running_loop().time() - failed.at_s
        if not isinstance(failed.error, LoginRefused):
            return age_s < _JUMP_FAILURE_S
        is_recent = age_s < _JUMP_REFUSAL_S
        return is_recent and not await self._credentials.has_changed(failed.credentials)

    async def _connect_tcp(self, options: asyncssh.SSHClientConnectionOptions) -> socket.socket:
        """A socket connected to the first address that answers. Raises Unreachable.

        The time limit is for all addresses together.
        """
        host, port = options.host, options.port
        failure = Unreachable(f"no address to try for {host}")
        try:
            async with asyncio.timeout(self._timeouts.connect_s):
                for family, address in await self._resolve(host, port, options.family):
                    try:
                        return await _connect(family, address, options.local_addr)
                    except OSError as error:
                        failure = connect_error(error, _where(host, address), "sshd")
        except TimeoutError:
            within = interval(self._timeouts.connect_s)
            text = f"no answer to the TCP connection to {host}:{port} in {within}"
            raise Unreachable(with_check(text, "timeout"), "timeout") from None
        raise failure

    async def _resolve(
        self, host: str, port: int, family: int
    ) -> list[tuple[int, tuple[Any, ...]]]:
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                self._resolver, socket.getaddrinfo, host, port, family, socket.SOCK_STREAM
            )
        except (OSError, UnicodeError) as error:
            words = error.strerror if isinstance(error, OSError) else None
            text = f"no address for {host}: {words or error}"
            raise Unreachable(with_check(text, "unknown name"), "unknown name") from None
        return [(info[0], info[4]) for info in found]


_AT_ONCE = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")
"""Ciphers that asyncssh applies to a packet in one call. ChaCha20, its first choice, takes several:
a third of the CPU that a frame costs on the console."""


def _ciphers(allowed: Sequence[bytes]) -> list[str]:
    """The ciphers to propose: as ssh_config says, else the usual ones, the fast ones first."""
    names = [name.decode() for name in allowed]
    if tuple(allowed) != _usual_ciphers():
        return names
    return sorted(names, key=lambda name: name not in _AT_ONCE)


@lru_cache(1)
def _usual_ciphers() -> tuple[bytes, ...]:
    return tuple(asyncssh.SSHClientConnectionOptions(config=[]).encryption_algs)


async def _connect(family: int, address: tuple[Any, ...], local_addr: Any) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        if local_addr:
            connection.bind((str(local_addr[0]), 0))
        await asyncio.get_running_loop().sock_connect(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


def _where(host: str, address: tuple[Any, ...]) -> str:
    shown = f"[{address[0]}]" if ":" in str(address[0]) else str(address[0])
    where = f"{shown}:{address[1]}"
    return where if host == address[0] else f"{host} ({where})"


def _is_over(task: asyncio.Task[Connection]) -> bool:
    """Whether a login failed, or its connection is closed."""
    if not task.done():
        return False
    with contextlib.suppress(NodeError, asyncio.CancelledError):
        return task.result().is_closed()
    return True


def _copy(error: NodeError, message: str) -> NodeError:
    copy = type(error)(message, error.cause)
    if isinstance(copy, LoginRefused) and isinstance(error, LoginRefused):
        copy.until_changed = error.until_changed
        copy.forget = error.forget
    return copy


def _parse_hop(hop: str) -> SshTarget:
    """`[user@]address[:port]`, an IPv6 address in brackets if a port follows it."""
    user, _, server = hop.rpartition("@")
    address, colon, port = server.rpartition(":")
    if not colon or not port.isdecimal() or (":" in address and not address.endswith("]")):
        address, port = server, ""
    return SshTarget(address.strip("[]"), user or None, int(port) if port else None)
