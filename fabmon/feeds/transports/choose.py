"""The transports that a set of hosts needs, and no others: asyncssh takes 0.2 s to import."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterable

from fabmon.fabric.model import VIAS, Host
from fabmon.feeds import bootstrap
from fabmon.feeds.transports.base import Transport

_TRANSPORTS = {
    "ssh": "fabmon.feeds.transports.ssh:SshTransport",
    "exec": "fabmon.feeds.transports.exec:ExecTransport",
    "local": "fabmon.feeds.transports.local:LocalTransport",
    "http": "fabmon.feeds.transports.http:HttpTransport",
    "exporters": "fabmon.feeds.transports.exporters:ExportersTransport",
    "eapi": "fabmon.feeds.transports.eapi:EapiTransport",
    "snmp": "fabmon.feeds.transports.snmp:SnmpTransport",
    "ufm": "fabmon.feeds.transports.ufm:UfmTransport",
}
"""`via` -> its class."""

_TAKE_SSH_CONFIG = ("ssh", "exec")


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
    module, _, name = _TRANSPORTS[via].partition(":")
    kind = getattr(importlib.import_module(module), name)
    made: Transport = kind(settings, ssh_config) if via in _TAKE_SSH_CONFIG else kind(settings)
    return made
