"""What a transport offers: bytes to and from a probe on a node, and a true reason when it ends."""

from __future__ import annotations

from typing import Protocol

from fabmon.fabric.model import Host


class Session(Protocol):
    """One running probe."""

    async def readline(self) -> bytes:
        """The next line, with its newline. Raises NodeError when the session ends or misbehaves."""

    def send(self, data: bytes) -> None:
        """Queue bytes for the probe's standard input; never blocks."""

    async def close(self) -> None:
        """End the session and, with it, the probe."""


class Transport(Protocol):
    """A way to start probes. One for all its hosts: it may share connections between them."""

    async def open(self, host: Host) -> Session:
        """Start the probe on a host. Raises NodeError."""

    async def close(self) -> None:
        """Give back what the transport holds, all sessions included."""
