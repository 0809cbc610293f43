"""The lab: a leaf-spine fabric of network namespaces with real links, routes, sshd and traffic.

::

    with Lab(spines=4, leaves=2, hosts_per_leaf=4) as lab:
        lab.collide("leaf1", "up3")
        subprocess.run(lab.console_argv(["fabmon", "--hosts", str(lab.hosts_file), ...]))

Needs root. Everything is removed on exit; after a crash, by the next lab that starts.
"""

from __future__ import annotations

import atexit
import itertools
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from tests.lab import build, netns, patterns, registry, wire, wiring
from tests.lab.hashing import FlowPath, PortFinder
from tests.lab.layout import MGMT_PORT, Layout
from tests.lab.netns import LabError
from tests.lab.nodes import Nodes
from tests.lab.traffic import Flow

_FIRST_DPORT = 5201


class Lab(Nodes):
    """A fabric with `spines` x `leaves` and `hosts_per_leaf` hosts under each leaf.

    `rate_mbps` is the line rate of every fabric port, in megabits per second and direction; that of
    uplinks is `uplink_mbps` where given. Hosts have `rails` NICs each, called `nic`0, `nic`1, ...,
    and `host_mgmt` for ssh. `wires` are uplinks (`leaf1/up3`) whose line rate the kernel knows.
    Without `arp` no node has neighbour entries of its cables.
    """

    def __init__(
        self,
        spines: int = 4,
        leaves: int = 2,
        hosts_per_leaf: int = 4,
        rate_mbps: float = 100,
        rails: int = 1,
        wires: frozenset[str] = frozenset(),
        *,
        uplink_mbps: float | None = None,
        nic: str = "eth",
        host_mgmt: str = MGMT_PORT,
        arp: bool = True,
    ) -> None:
        """Plan a lab; entering it builds it."""
        super().__init__(Layout(spines, leaves, hosts_per_leaf, rails, wires, nic, host_mgmt))
        self.rate_mbps = rate_mbps
        self.uplink_mbps = uplink_mbps or rate_mbps
        self._arp = arp
        self._finder = PortFinder()
        self._dports = itertools.count(_FIRST_DPORT)
        self._down: set[tuple[str, str]] = set()
        self._flows: list[Flow] = []
        self._servers: list[build.Server] = []
        self._signals: list[signal.Signals] = []

    def __enter__(self) -> Lab:
        """Remove leftovers of dead labs, then build this one."""
        self._take_signals()
        atexit.register(self.close)
        try:
            self._record = registry.claim()
            rates = build.Rates(self.rate_mbps, self.uplink_mbps)
            build.build(self.layout, self._record, rates, self._servers, self._arp)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove everything."""
        self.close()

    def close(self) -> None:
        """Remove everything; safe to call twice."""
        if self._record is not None:
            self.stop_traffic()
            registry.release(self._record)
            self._record = None
        while self._servers:
            self._servers.pop().wait()
        # Only now: a ctrl-c half way through leaves the rest to the end of the process.
        atexit.unregister(self.close)
        while self._signals:
            signal.signal(self._signals.pop(), signal.SIG_DFL)

    def _take_signals(self) -> None:
        """Have signals that would end Python without unwinding, and leave the lab, unwind it."""
        if threading.current_thread() is not threading.main_thread():
            return  # Only the main thread may; the program has to see to it.
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _exit_on_signal)
                self._signals.append(number)

    # -- changing the fabric ---------------------------------------------------------------

    def set_rate(self, node: str, port: str, mbps: float) -> None:
        """Change the line rate of what `port` sends (not of what its far end sends to it)."""
        netns.batch("tc", [wiring.shaper_line(port, mbps)], self.ns(node))

    def degrade(self, leaf: str, uplink: str, mbps: float) -> None:
        """Have both ends of a wire run at another line rate, as the kernel knows."""
        own, far = next(ends for ends in self.layout.ends(leaf) if ends[0].port == uplink)
        for end in (own, far):
            self.set_rate(end.node, end.port, mbps)
            wire.set_speed(self.ns(end.node), end.port, mbps)

    def set_hash_seed(self, node: str, seed: int) -> None:
        """Change the ECMP hash of a switch: flows move, collisions come and go. 0 = the default."""
        netns.write_sysctls(self.ns(node), {wiring.SEED_SYSCTL: str(seed)})
        self._finder.forget()

    def link_down(self, node: str, port: str) -> None:
        """Take a port down; its far end loses the carrier, and routes go around it."""
        self._set_link(node, port, "down")
        self._down.add((node, port))
        self._reroute()

    def link_up(self, node: str, port: str) -> None:
        """Bring a port back, the routes over it, and what its ends know of each other."""
        self._set_link(node, port, "up")
        self._down.discard((node, port))
        self._reroute()
        if self._arp:
            build.greet(self.layout, self.prefix)

    def _set_link(self, node: str, port: str, state: str) -> None:
        netns.batch("ip", [f"link set dev {port} {state}"], self.ns(node))

    def _reroute(self) -> None:
        build.install_routes(self.layout, self.prefix, self._down)
        self._finder.forget()

    # -- flows -----------------------------------------------------------------------------

    def _path(self, src: str, dst: str, dport: int) -> FlowPath:
        leaf = self.layout.leaf_of(src)
        ends = self.layout.fabric_address(src), self.layout.fabric_address(dst)
        return FlowPath(self.ns(leaf), self.layout.port_to(leaf, src), *ends, dport)

    def probe_uplink(self, src: str, dst: str, sport: int, dport: int) -> str:
        """Send a few datagrams and return the port of the source's leaf they left by."""
        paths = self._path(src, dst, dport).probe(self.ns(src), [sport])
        if sport not in paths:
            raise LabError(f"no datagram from {src} port {sport} left its leaf")
        return paths[sport]

    def probe_uplinks(
        self, src: str, dst: str, sports: Sequence[int], dport: int
    ) -> dict[int, str]:
        """`probe_uplink` for many client ports at once; those that got lost are absent."""
        return self._path(src, dst, dport).probe(self.ns(src), sports)

    def find_sport(self, src: str, dst: str, dport: int, uplink: str) -> int:
        """A free client port for which UDP from `src` to `dst`:`dport` leaves by `uplink`."""
        if uplink not in self.layout.uplinks(self.layout.leaf_of(src)):
            raise LabError(f"the leaf of {src} has no uplink {uplink}")
        return self._finder.find(self._path(src, dst, dport), uplink)

    def elephant(self, src: str, dst: str, uplink: str | None, mbps: float) -> Flow:
        """Start a flow; see `plan_flow`."""
        return self.plan_flow(src, dst, uplink, mbps).start()

    def plan_flow(self, src: str, dst: str, uplink: str | None, mbps: float) -> Flow:
        """A UDP flow of `mbps` (on the wire) over `uplink` of the source's leaf, not yet started.

        With `uplink` None the kernel chooses the client port, and so the uplink if there is one.
        """
        dport = next(self._dports)
        sport = self.find_sport(src, dst, dport, uplink) if uplink else 0
        address = self.layout.fabric_address(src)
        self._finder.take(address, sport)
        flow = Flow(
            src=src,
            dst=dst,
            uplink=uplink,
            mbps=mbps,
            sport=sport,
            dport=dport,
            src_ns=self.ns(src),
            dst_ns=self.ns(dst),
            dst_address=self.layout.fabric_address(dst),
            log=self.directory / f"flow-{dport}.log",
            on_stop=lambda: self._finder.give_back(address, sport),
        )
        self._flows.append(flow)
        return flow

    def collide(
        self, leaf: str = "leaf1", uplink: str = "up3", share: float = 0.8, count: int = 2
    ) -> list[Flow]:
        """`count` elephants from different hosts of `leaf` on one uplink, each with this `share` of
        line rate."""
        return patterns.collide(self, leaf, uplink, share * self.rate_mbps, count)

    def spread(self, share: float = 0.5, leaf: str = "leaf1") -> list[Flow]:
        """One elephant of this `share` of line rate on each uplink of `leaf`, each from a host of
        its own."""
        return patterns.spread(self, leaf, share * self.rate_mbps)

    def incast(self, dst: str = "gpu001", share: float = 0.6, count: int = 3) -> list[Flow]:
        """`count` elephants of this `share` of line rate from different hosts into one."""
        return patterns.incast(self, dst, share * self.rate_mbps, count)

    def stop_traffic(self) -> None:
        """Stop every flow this lab started."""
        for flow in self._flows:
            flow.stop()
        self._flows.clear()


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
