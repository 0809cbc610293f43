"""Which uplink a flow takes, and which client port makes it take another.

Two ways to know. The kernel answers a route query that carries ports with the very hash it
forwards by, so thousands of candidates cost milliseconds and not one packet. And real datagrams
can be sent and watched leaving: that is the proof, and the tests hold the first against it.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from tests.lab import netns
from tests.lab.netns import LabError
from tests.lab.tap import Tap

SPORTS = range(40_000, 42_000)
"""Client ports to choose from: outside iperf3's defaults and enough for any uplink."""

_ROUTE = re.compile(r"^\S+ from \S+(?: via \S+)? dev (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FlowPath:
    """A flow at a leaf: the namespace of the leaf, the port it enters, its addresses."""

    leaf_ns: str
    in_port: str
    src: str
    dst: str
    dport: int
    protocol: str = "udp"

    def query(self, sports: Sequence[int]) -> list[str]:
        """The port of the leaf that the kernel says each client port leads to."""
        lines = [
            f"route get {self.dst} from {self.src} iif {self.in_port}"
            f" ipproto {self.protocol} sport {sport} dport {self.dport}"
            for sport in sports
        ]
        ports = _ROUTE.findall(netns.batch("ip", lines, self.leaf_ns))
        if len(ports) != len(lines):
            raise LabError(f"{len(lines)} routes asked of {self.leaf_ns}, {len(ports)} answered")
        return ports

    def probe(self, src_ns: str, sports: Sequence[int], timeout_s: float = 1.0) -> dict[int, str]:
        """The port of the leaf that real datagrams leave by, for each client port that got out.

        Sends three datagrams from each port and looks at what leaves the leaf, so background
        traffic (ARP, elephants) does not blur the answer. A full queue may still lose them all.
        """
        wanted = set(sports)
        paths: dict[int, str] = {}
        with Tap(self.leaf_ns) as tap:
            for sport in sports:
                self._send(src_ns, sport)
            for seen in tap.watch(timeout_s):
                ours = (seen.src, seen.dst, seen.dport) == (self.src, self.dst, self.dport)
                if seen.sent and ours and seen.sport in wanted:
                    paths[seen.sport] = seen.port
                    if len(paths) == len(wanted):
                        break
        return paths

    def _send(self, src_ns: str, sport: int) -> None:
        with netns.make_socket(src_ns, socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sender.bind((self.src, sport))
            for _ in range(3):
                sender.sendto(b"fabmon lab probe", (self.dst, self.dport))


class PortFinder:
    """Finds client ports for wanted uplinks, remembers answers, and gives no port out twice."""

    def __init__(self) -> None:
        """Start with nothing known and nothing taken."""
        self._paths: dict[FlowPath, list[str]] = {}
        self._taken: set[tuple[str, int]] = set()

    def forget(self) -> None:
        """Drop what was learned: the hash or the routes have changed."""
        self._paths.clear()

    def find(self, path: FlowPath, uplink: str) -> int:
        """The first client port in `SPORTS` for which `path` leaves by `uplink`."""
        ports = self._paths.get(path)
        if ports is None:
            ports = self._paths[path] = path.query(SPORTS)
        for sport, port in zip(SPORTS, ports, strict=True):
            if port == uplink and (path.src, sport) not in self._taken:
                return sport
        raise LabError(f"no client port leads from {path.src} to {path.dst} over {uplink}")

    def take(self, src: str, sport: int) -> None:
        """Mark a client port of address `src` as in use."""
        self._taken.add((src, sport))

    def give_back(self, src: str, sport: int) -> None:
        """Mark a client port of address `src` as free again."""
        self._taken.discard((src, sport))
