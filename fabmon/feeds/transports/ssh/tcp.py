"""The TCP connection under SSH, made by ourselves so that the reason is true when it fails."""

from __future__ import annotations

import asyncio
import errno
import socket
from concurrent.futures import Executor
from typing import Any

from fabmon.feeds.errors import Unreachable

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
