"""SSH servers inside the test's own event loop, each with its own way of being a node."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncssh

from fabmon.fabric.model import Host

Handler = Callable[["asyncssh.SSHServerProcess[bytes]"], Awaitable[None]]


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


async def shell(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """A node: runs the command line with sh, as sshd does with the account's shell."""
    assert process.command is not None
    child = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        process.command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", **dict(process.env)},
    )
    assert child.stdin is not None
    try:
        await process.redirect(child.stdin, child.stdout, child.stderr)
        process.exit(await child.wait())
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


class Nodes:
    """A key pair, an ssh_config, a known_hosts, and servers that go with them."""

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
        self._acceptors: list[asyncssh.SSHAcceptor] = []
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
        **options: object,
    ) -> int:
        """A server's port. It shows `host_key`, and lets the client's key in if it is welcome."""
        guests = self.directory / "authorized_keys"
        guests.write_bytes(self.client_key.export_public_key() if welcome else b"")
        acceptor = await asyncssh.listen(
            "127.0.0.1",
            port,
            server_host_keys=[self.host_key],
            authorized_client_keys=asyncssh.import_authorized_keys(guests.read_text()),
            process_factory=handler,
            server_factory=server,
            encoding=None,
            **options,
        )
        self._acceptors.append(acceptor)
        if known:
            self.trust(acceptor.get_port(), self.host_key)
        return acceptor.get_port()

    async def listen_tcp(
        self, handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    ) -> int:
        """The port of a server that is no SSH server."""
        server = await asyncio.start_server(handler, "127.0.0.1", 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def trust(self, port: int, key: asyncssh.SSHKey) -> None:
        line = f"[127.0.0.1]:{port} {key.export_public_key().decode()}"
        self.known_hosts.write_text(self.known_hosts.read_text() + line)

    async def stop(self, port: int) -> None:
        """Shut a server down, with all its connections, as a reboot does."""
        for acceptor in self._acceptors:
            if acceptor.get_port() == port:
                self._acceptors.remove(acceptor)
                acceptor.close()
                await acceptor.wait_closed()
                return

    async def close(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
            await acceptor.wait_closed()
        for server in self._servers:
            server.close()


def ssh_host(name: str, port: int) -> Host:
    return Host(name=name, address="127.0.0.1", port=port)
