"""The counters of `ethtool -S`, without ethtool: a driver's list of names, and its u64s.

Two readers with the same methods, one interface each. `names` are the counters in the driver's
order, stripped, whose positions change when queues or PFC change; `choose` sets which of the
`count` values `read` returns, positions in ascending order; `read` returns them, or None when the
driver's list is no longer `count` long. `SocketStats` asks the kernel: the names once, then one
ioctl a read, of which only the wanted numbers become Python integers. `TextStats` reads the output
of `ethtool -S <interface>` from a file, which a tree at another root may contain.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from array import array
from typing import List, Optional, Sequence, Tuple, Union

from collectors.hostfs import HostFS
from collectors.source import Failed, Unsupported

_SIOCETHTOOL = 0x8946
_GSTRINGS = 0x1B
_GSTATS = 0x1D
_GSSET_INFO = 0x37
_STATS_SET = 1
_NAME_BYTES = 32
_MAX_NAMES = 16384
_HEADER = struct.Struct("=II")
_IFREQ = struct.Struct("=16sQ16x")

_BUFFER_U64S = 131072
"""u64s in the buffer, twice what the names take. Kernels before 6.19 write as many as the driver
has at that moment, however many were requested: a list that has grown must not overrun it."""


class EthtoolSocket:
    """One ioctl socket and one buffer for all interfaces."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.buffer = array("Q", [0]) * _BUFFER_U64S
        self._address = self.buffer.buffer_info()[0]

    def call(self, interface: bytes) -> None:
        """Run the command in the buffer on an interface. Raises OSError."""
        fcntl.ioctl(self._socket, _SIOCETHTOOL, _IFREQ.pack(interface, self._address))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class SocketStats:
    """Counters of an interface of this machine, from the kernel."""

    def __init__(self, link: EthtoolSocket, interface: str) -> None:
        self._link = link
        self._interface = interface.encode()
        self._wanted = struct.Struct("")
        self._count = 0

    def names(self) -> List[str]:
        """The names, from the kernel. Raises OSError."""
        buffer = self._link.buffer
        # GSSET_INFO: command, reserved, a mask of string sets; answers with the size of each.
        struct.pack_into("=IIQI", buffer, 0, _GSSET_INFO, 0, 1 << _STATS_SET, 0)
        self._link.call(self._interface)
        mask, count = struct.unpack_from("=QI", buffer, 8)
        if not mask or not count:
            return []
        if count > _MAX_NAMES:
            raise Failed(f"{count} counters are more than any driver has")
        struct.pack_into("=III", buffer, 0, _GSTRINGS, _STATS_SET, count)
        self._link.call(self._interface)
        data = bytes(memoryview(buffer).cast("B")[12 : 12 + count * _NAME_BYTES])
        return [
            data[start : start + _NAME_BYTES].partition(b"\0")[0].decode("ascii", "replace").strip()
            for start in range(0, len(data), _NAME_BYTES)
        ]

    def choose(self, positions: Sequence[int], count: int) -> None:
        """Build the struct layout that skips all other values."""
        layout = ["="]
        at = 0
        for position in positions:
            layout.append(f"{8 * (position - at)}xQ")
            at = position + 1
        self._wanted = struct.Struct("".join(layout))
        self._count = count

    def read(self) -> Optional[Tuple[int, ...]]:
        """The chosen values, from the kernel. Raises OSError."""
        buffer = self._link.buffer
        _HEADER.pack_into(buffer, 0, _GSTATS, self._count)
        self._link.call(self._interface)
        if _HEADER.unpack_from(buffer, 0)[1] != self._count:
            return None
        return self._wanted.unpack_from(buffer, _HEADER.size)

    def close(self) -> None:
        """Nothing to close: the socket is shared."""


class TextStats:
    """Counters from a file with the output of `ethtool -S`."""

    def __init__(self, fs: HostFS, *parts: str) -> None:
        self._file = fs.open(*parts)
        self._positions: Sequence[int] = ()
        self._count = 0

    def names(self) -> List[str]:
        """The text before the last colon of each line (`[0]: rx_discards: 7`)."""
        lines = self._lines()
        return [line.rpartition(b":")[0].decode("ascii", "replace").strip() for line in lines]

    def choose(self, positions: Sequence[int], count: int) -> None:
        """Keep the line numbers."""
        self._positions = positions
        self._count = count

    def read(self) -> Optional[Tuple[int, ...]]:
        """The numbers of the chosen lines. Raises Unsupported when one is not a number."""
        lines = self._lines()
        if len(lines) != self._count:
            return None
        try:
            return tuple([int(lines[place].rpartition(b":")[2]) for place in self._positions])
        except ValueError as error:
            raise Unsupported(f"not the output of ethtool -S: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _lines(self) -> List[bytes]:
        """The lines of counters; the heading `NIC statistics:` has nothing after its colon."""
        return [line for line in self._file.read_all().splitlines() if b": " in line]


EthtoolStats = Union[SocketStats, TextStats]
