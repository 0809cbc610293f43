"""Asks NCCL's RAS once for the status of a job, over TCP.

The protocol is that of the NCCL user guide ("RAS") and of NVIDIA's client: lines of text, of which
only `CLIENT PROTOCOL`, `TIMEOUT`, `SET FORMAT json` and `STATUS` are sent. A query can crash a job
(fabmon/analysis/nccl_ras/versions.py): nothing here is called without the user's request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Protocol

from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import clean
from fabmon.feeds.errors import Ended, Misbehaved, Unreachable, connect_error

if TYPE_CHECKING:
    import asyncssh

PORT = 28028
"""Where RAS listens, on localhost, unless NCCL_RAS_ADDR says otherwise."""

_PROTOCOL = 2
_MOST_REPLY = 1024
_MOST_STATUS = 64 << 20
_BLOCK = 1 << 16
_CONNECT_S = 5.0
_REPLY_S = 5.0
_EXTRA_S = 5.0
"""RAS waits for other processes up to its timeout on each of a few legs; NVIDIA's client adds five
seconds too."""


_SEARCH_S = 20.0
_MOST_PATHS = 1 << 16
_SEARCH = r"""
grep -Ho '/[^ ]*/libnccl\.so[^ ]*' /proc/[0-9]*/maps 2>/dev/null | sort -t : -u -k 2 | head -n 64 |
while IFS=: read -r maps file; do
    inside="${maps%/maps}/root$file"
    found=$(grep -aom 1 'NCCL version [0-9]*\.[0-9]*\.[0-9]*' "$inside" 2>/dev/null | head -n 1)
    printf '%s\t%s\n' "$file" "$found"
done
"""
"""For the account's shell on the node; a library in a container is read through the root of its
process. It reads, and starts nothing that stays."""


class Reader(Protocol):
    """What is read from: a stream of asyncio, or of a channel of SSH."""

    async def read(self, n: int = -1, /) -> bytes:
        """At most `n` bytes; empty at the end."""


class Writer(Protocol):
    """What is written to."""

    def write(self, data: bytes, /) -> None:
        """Queue bytes."""

    async def drain(self) -> None:
        """Wait until they are accepted."""


async def query_status(reader: Reader, writer: Writer, timeout_s: int) -> bytes:
    """The status of the job, as JSON, or as text where RAS does not know JSON.

    RAS waits `timeout_s` for other processes of the job. Raises Ended and Misbehaved.
    """
    lines = _Lines(reader, writer)
    try:
        reply = await lines.ask(f"CLIENT PROTOCOL {_PROTOCOL}")
        _check_protocol(reply)
        reply = await lines.ask(f"TIMEOUT {timeout_s}")
        if reply != "OK":
            raise Misbehaved(f"RAS refused the timeout: {reply}")
        reply = await lines.ask("SET FORMAT json")
        if reply != "OK" and not reply.startswith("ERROR"):
            raise Misbehaved(f"RAS answered SET FORMAT with {reply}")
        return await lines.status(2 * timeout_s + _EXTRA_S)
    except OSError as error:
        raise Ended(f"the connection to RAS broke: {error.strerror or error}") from None


def _check_protocol(reply: str) -> None:
    head, _, number = reply.rpartition(" ")
    if head.upper() != "SERVER PROTOCOL":
        raise Misbehaved(f"this is not NCCL's RAS: it answered {reply}")
    if number != str(_PROTOCOL):
        raise Misbehaved(
            f"RAS speaks protocol {number}, fabmon knows {_PROTOCOL}: nothing was asked. Use"
            " ncclras of that NCCL, and give its output to fabmon ras"
        )


class _Lines:
    """A connection: each command is answered by a line, the last one by the status."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._reader = reader
        self._writer = writer
        self._rest = b""

    async def ask(self, command: str) -> str:
        """The line that answers a command. Raises Ended, Misbehaved."""
        try:
            async with asyncio.timeout(_REPLY_S):
                await self._send(command)
                while b"\n" not in self._rest:
                    if len(self._rest) > _MOST_REPLY:
                        raise Misbehaved(f"RAS answered {command} with more than a line")
                    block = await self._reader.read(_MOST_REPLY)
                    if not block:
                        raise Ended(f"RAS closed the connection at {command}")
                    self._rest += block
        except TimeoutError:
            raise Ended(f"RAS did not answer {command} in {_REPLY_S:.0f} s", "timeout") from None
        line, _, self._rest = self._rest.partition(b"\n")
        return clean(line[:_MOST_REPLY].decode("utf-8", "replace").strip())

    async def status(self, patience_s: float) -> bytes:
        """What follows STATUS, up to the end of the connection. Raises Ended, Misbehaved."""
        blocks, size = [self._rest], len(self._rest)
        try:
            async with asyncio.timeout(patience_s):
                await self._send("STATUS")
                while block := await self._reader.read(_BLOCK):
                    blocks.append(block)
                    size += len(block)
                    if size > _MOST_STATUS:
                        raise Misbehaved(f"RAS sent more than {_MOST_STATUS >> 20} MiB", "flood")
        except TimeoutError:
            raise Ended(
                f"RAS did not finish its answer in {patience_s:.0f} s ({size} bytes came)",
                "timeout",
            ) from None
        if not size:
            raise Ended("RAS closed the connection without a status")
        return b"".join(blocks)

    async def _send(self, command: str) -> None:
        self._writer.write(f"{command}\n".encode())
        await self._writer.drain()


@contextlib.asynccontextmanager
async def connected(address: str, port: int) -> AsyncIterator[tuple[Reader, Writer]]:
    """A TCP connection to RAS. Raises Unreachable."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(address, port)
    except TimeoutError:
        raise Unreachable(f"no answer from {address}:{port}", "timeout") from None
    except OSError as error:
        raise connect_error(error, f"{address}:{port}") from None
    try:
        yield reader, writer
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def _logged_in(
    host: Host, ssh_config: str | None
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """An SSH connection. Raises NodeError."""
    # Importing asyncssh takes 0.2 s: it is imported when it is needed.
    from fabmon.feeds.transports.ssh_dialer import Dialer, SshTarget
    from fabmon.feeds.transports.ssh_login import SshTimeouts

    dialer = Dialer(ssh_config, SshTimeouts())
    try:
        target = SshTarget(host.address or host.name, host.user, host.port)
        connection = await dialer.dial(target)
        try:
            yield connection
        finally:
            connection.abort()
    finally:
        await dialer.close()


@contextlib.asynccontextmanager
async def connected_over_ssh(
    host: Host, port: int, ssh_config: str | None
) -> AsyncIterator[tuple[Reader, Writer]]:
    """A connection to RAS on localhost of a node, through SSH. Raises NodeError."""
    import asyncssh

    async with _logged_in(host, ssh_config) as connection:
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await connection.open_connection("localhost", port)
        except TimeoutError:
            raise Unreachable(f"no answer from port {port} of {host.name}", "timeout") from None
        except (asyncssh.Error, OSError) as error:
            raise Unreachable(f"localhost:{port} on {host.name}: {error}", "refused") from None
        yield reader, writer


async def mapped_over_ssh(host: Host, ssh_config: str | None) -> dict[str, str]:
    """Path of a libnccl that a process of a node has mapped -> the text `NCCL version …` in it,
    empty where it has none; of processes that the account may read. Raises NodeError."""
    import asyncssh

    async with _logged_in(host, ssh_config) as connection:
        try:
            async with asyncio.timeout(_SEARCH_S):
                process = await connection.create_process(_SEARCH, encoding=None)
                content = b""
                while len(content) < _MOST_PATHS and (block := await process.stdout.read(_BLOCK)):
                    content += block
        except TimeoutError:
            raise Ended(
                f"the search for libnccl on {host.name} took more than {_SEARCH_S:.0f} s", "timeout"
            ) from None
        except (asyncssh.Error, OSError) as error:
            raise Ended(f"{host.name} runs no command: {error}") from None
    lines = content[:_MOST_PATHS].decode("utf-8", "replace").splitlines()
    pairs = [line.partition("\t") for line in lines if line.startswith("/")]
    return {clean(path): clean(found) for path, _, found in pairs}
