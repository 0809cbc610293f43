"""Jump hosts: one connection each, however many nodes are behind it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import asyncssh

from fabmon.feeds.errors import NodeError, Unreachable

_REMEMBER_FAILURE_S = 5.0

DialHop = Callable[
    [str, asyncssh.SSHClientConnection | None, tuple[str, ...]],
    Awaitable[asyncssh.SSHClientConnection],
]
"""Logs in to `user@host:port`, through a connection or directly; the last are the jumps so far."""


class Jumps:
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
