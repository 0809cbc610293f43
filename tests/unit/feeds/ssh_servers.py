"""SSH servers in the event loop of the test, each with a behaviour of its own."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import asyncssh

from fabmon.fabric.model import Host

Process = asyncssh.SSHServerProcess[bytes]
Connections = list[asyncssh.SSHServerConnection]
Handler = Callable[[Process], Awaitable[None]]


class Reader(Protocol):
    """A source of bytes, at either end."""

    async def read(self, n: int, /) -> bytes: ...


class Writer(Protocol):
    """A destination of bytes, at either end."""

    def write(self, data: bytes, /) -> None: ...
    async def drain(self) -> None: ...


class Bastion(asyncssh.SSHServer):
    """Forwards TCP; counts its logins and its forwards."""

    logins = 0
    forwards = 0

    def auth_completed(self) -> None:
        type(self).logins += 1

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> bool:
        type(self).forwards += 1
        return True


async def shell(process: Process) -> None:
    """A node: runs the command line with sh, as sshd runs the account's shell."""
    assert process.command is not None
    child = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        process.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    typing = asyncio.create_task(_type(process.stdin, child.stdin))
    try:
        await asyncio.gather(
            _pump(child.stdout, process.stdout), _pump(child.stderr, process.stderr)
        )
        process.exit(await asyncio.wait_for(child.wait(), 5.0))
    finally:
        typing.cancel()
        if child.returncode is None:
            child.kill()
            await child.wait()


async def _type(reader: Reader, writer: asyncio.StreamWriter) -> None:
    await _pump(reader, writer)
    with contextlib.suppress(OSError):
        writer.write_eof()


async def _pump(reader: Reader, writer: Writer) -> None:
    """Copy until either side ends."""
    with contextlib.suppress(OSError, asyncssh.Error):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


class Nodes:
    """A key pair, an ssh_config and a known_hosts file, and SSH servers that match them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.client_key = asyncssh.generate_private_key("ssh-ed25519")
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.known_hosts = directory / "known_hosts"
        self.config = directory / "ssh_config"
        self.client_key.write_private_key(directory / "key")
        self.client_key.write_public_key(directory / "key.pub")
        self.known_hosts.write_text("")
        self.write_config("")
        self._acceptors: list[tuple[asyncssh.SSHAcceptor, Connections]] = []
        self._servers: list[asyncio.Server] = []

    def write_config(self, before: str) -> None:
        self.config.write_text(
            f"{before}\n"
            "Host *\n"
            "  User tester\n"
            f"  IdentityFile {self.directory}/key\n"
            "  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.known_hosts}\n"
            "  GlobalKnownHostsFile /dev/null\n"
        )

    async def listen(
        self,
        handler: Handler = shell,
        *,
        known: bool = True,
        welcome: bool = True,
        port: int = 0,
        server: type[asyncssh.SSHServer] = asyncssh.SSHServer,
        **options: Any,
    ) -> int:
        """Start a server; returns its port. It accepts the client's key if `welcome`."""
        guests = self.directory / "authorized_keys"
        guests.write_bytes(self.client_key.export_public_key() if welcome else b"")
        connections: Connections = []
        acceptor = await asyncssh.listen(
            "127.0.0.1",
            port,
            server_host_keys=[self.host_key],
            authorized_client_keys=asyncssh.import_authorized_keys(guests.read_text()),
            process_factory=handler,
            server_factory=server,
            acceptor=connections.append,
            encoding=None,
            **options,
        )
        self._acceptors.append((acceptor, connections))
        if known:
            self.trust(acceptor.get_port(), self.host_key)
        return acceptor.get_port()

    async def listen_tcp(
        self, handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    ) -> int:
        """Start a TCP server that is no SSH server; returns its port."""
        server = await asyncio.start_server(handler, "127.0.0.1", 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def trust(self, port: int, key: asyncssh.SSHKey) -> None:
        line = f"[127.0.0.1]:{port} {key.export_public_key().decode()}"
        self.known_hosts.write_text(self.known_hosts.read_text() + line)

    async def stop(self, port: int) -> None:
        """Stop a server and its connections, as a reboot does."""
        for acceptor, connections in list(self._acceptors):
            if acceptor.get_port() == port:
                self._acceptors.remove((acceptor, connections))
                await _shut(acceptor, connections)

    async def close(self) -> None:
        for acceptor, connections in self._acceptors:
            await _shut(acceptor, connections)
        for server in self._servers:
            server.close()


async def _shut(acceptor: asyncssh.SSHAcceptor, connections: Connections) -> None:
    acceptor.close()
    for connection in connections:
        connection.abort()
    await asyncio.gather(*(connection.wait_closed() for connection in connections))
    await acceptor.wait_closed()


def ssh_host(name: str, port: int) -> Host:
    return Host(name=name, address="127.0.0.1", port=port)
