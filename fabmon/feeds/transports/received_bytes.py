"""How much a peer has sent over the connections of this process, as the kernel counts it.

gRPC reads frames without content (pings, settings, frames of unknown types) in threads of its own;
it neither limits nor counts them.
"""

from __future__ import annotations

import math
import os
import socket
import stat
import time
from collections.abc import Collection
from pathlib import Path

_LOOK_AGAIN_S = 5.0
"""A connection through a proxy is never found: to look through 1,000 descriptors takes 10 ms."""
_TCP_INFO_BYTES = 136
_RECEIVED = slice(128, 136)
"""tcpi_bytes_received in Linux' struct tcp_info, from 4.2 on (include/uapi/linux/tcp.h)."""


class ReceivedBytes:
    """Counts what the connections to some addresses, at one port, have received."""

    def __init__(self, addresses: Collection[str], port: int) -> None:
        self._addresses = addresses
        self._port = port
        self._fds: dict[int, int] = {}
        self._looked_s = -math.inf

    def more(self) -> int:
        """The bytes since the last call; 0 where there is no such connection, or no Linux."""
        counts = {fd: size for fd in self._fds if (size := self._received(fd)) is not None}
        now_s = time.monotonic()
        if not counts and now_s - self._looked_s >= _LOOK_AGAIN_S:
            self._looked_s = now_s
            counts = {fd: size for fd in _descriptors() if (size := self._received(fd)) is not None}
        # A smaller count is that of another connection.
        more = sum(
            size - before if size >= (before := self._fds.get(fd, 0)) else size
            for fd, size in counts.items()
        )
        self._fds = counts
        return more

    def _received(self, fd: int) -> int | None:
        """What a connection to the peer has received; None for any other descriptor."""
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                return None
            with socket.socket(fileno=os.dup(fd)) as connection:
                address, port = connection.getpeername()[:2]
                if port != self._port or address.removeprefix("::ffff:") not in self._addresses:
                    return None
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        except (OSError, ValueError, AttributeError):
            return None
        return int.from_bytes(info[_RECEIVED], "little")


def _descriptors() -> list[int]:
    """The open descriptors of this process; none without Linux."""
    try:
        return [int(each.name) for each in Path("/proc/self/fd").iterdir()]
    except OSError:
        return []
