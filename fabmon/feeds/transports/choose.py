"""The transports that a set of hosts needs, and no others: asyncssh takes 0.2 s to import."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterable

from fabmon.fabric.model import Host
from fabmon.feeds import bootstrap
from fabmon.feeds.transports.base import Transport

VIAS = ("ssh", "exec", "local")


class Transports:
    """One transport for each `via` among `hosts`. Raises ValueError for one that there is not."""

    def __init__(
        self, hosts: Iterable[Host], settings: bootstrap.Settings, ssh_config: str | None = None
    ) -> None:
        self._by_via = {
            via: _make(via, settings, ssh_config) for via in sorted({host.via for host in hosts})
        }

    def of(self, host: Host) -> Transport:
        """The transport that reaches a host."""
        return self._by_via[host.via]

    async def close(self) -> None:
        """Close them all."""
        await asyncio.gather(*(transport.close() for transport in self._by_via.values()))


def _make(via: str, settings: bootstrap.Settings, ssh_config: str | None) -> Transport:
    if via not in VIAS:
        raise ValueError(f"no transport {via!r}: one of {', '.join(VIAS)}")
    module = importlib.import_module(f"fabmon.feeds.transports.{via}")
    if via == "local":
        local: Transport = module.LocalTransport(settings)
        return local
    kind = module.SshTransport if via == "ssh" else module.ExecTransport
    remote: Transport = kind(settings, ssh_config)
    return remote
