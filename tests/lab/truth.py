"""What was wrong with a lab, by the kernel's own counters: bytes, dropped packets of shapers, and
changes of carrier, read once a second beside fabmon and without it; at the end, the sockets.

It knows what fabmon cannot see: whether there was a queue in front of a port, and which NICs sent
to a receiver. Nothing here has read the scenario.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tests.lab import netns
from tests.lab.fabric import Lab

Floats = NDArray[np.float64]
Nic = tuple[str, str]
"""(host, port)."""

_OFTEN = 0.25
"""Share of the seconds in which there must be a queue in front of a port for it to be lasting: jobs
pause to compute.
"""
_QUEUE_S = 0.004
"""What waits in front of a port is a queue if the port takes so long to send it."""
_BUSY = 0.02
"""Share of line rate above which a NIC sends, once a second."""
_FULL = 0.45
"""A port with a queue sends, over a second, at least this share of what its shaper lets through."""
_UNSLOWED = 0.9
"""A NIC that sends this share of its line rate, while a port is full, is not slowed by it."""
_SLOW = 0.9
"""A shaper that lets through less than this share of line rate makes a slow link."""
_ENOUGH = 0.6
"""Samples a second that are enough to judge by."""
_FEW = 0.5
"""Many to one is so few of the NICs that receive, as a share; else it is many to many."""
_FLAPS = 3
_LATE_S = 2.5


@dataclass(frozen=True, slots=True)
class Wrong:
    """A cause and what it is about, in fabmon's words; a cable is called by its lower end."""

    cause: str
    subject: str

    def __str__(self) -> str:
        return f"{self.cause} of {self.subject}"


@dataclass
class Sample:
    """The fabric ports, (node, port), and when each node was read, on the monotonic clock."""

    at_s: dict[str, float] = field(default_factory=dict)
    sent: dict[tuple[str, str], int] = field(default_factory=dict)
    dropped: dict[tuple[str, str], int] = field(default_factory=dict)
    waiting_s: dict[tuple[str, str], float] = field(default_factory=dict)
    shaped_bps: dict[tuple[str, str], float] = field(default_factory=dict)


class Witness:
    """Reads the counters of all nodes once a second while it is entered."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="witness")
        self.samples: list[Sample] = []
        self.seconds = 0.0
        self.carrier_changes: dict[tuple[str, str], int] = {}
        """How often each switch port lost or got its carrier meanwhile."""
        self.senders: dict[str, set[str]] = {}
        """The addresses that have sent to each address."""

    def __enter__(self) -> Witness:
        self._begin_s, self._changes = time.monotonic(), self._read_changes()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.seconds = time.monotonic() - self._begin_s
        last = self._read_changes()
        self.carrier_changes = {port: last[port] - self._changes[port] for port in last}
        self.senders = _senders_by_receiver(self._lab)

    @property
    def is_sparse(self) -> bool:
        """Whether the machine was too busy to read the counters in most of the seconds."""
        return len(self.samples) < _ENOUGH * self.seconds

    def _read_changes(self) -> dict[tuple[str, str], int]:
        layout = self._lab.layout
        return {
            (node, port): changes
            for node in (*layout.leaves, *layout.spines)
            for port, changes in _carrier_changes(self._lab.ns(node)).items()
        }

    def _run(self) -> None:
        next_s = time.monotonic()
        while not self._stop.wait(max(0.0, next_s - time.monotonic())):
            next_s += 1.0
            self.samples.append(self._sample())

    def _sample(self) -> Sample:
        sample = Sample()
        for node in self._lab.layout.nodes:
            ns = self._lab.ns(node)
            sample.at_s[node] = time.monotonic()
            for port, counted in netns.read_counters(ns).items():
                sample.sent[node, port] = counted["tx_bytes"]
            if self._lab.layout.role(node) == "switch":
                for port, drops, backlog, rate in _shapers(ns):
                    sample.dropped[node, port] = drops
                    sample.waiting_s[node, port] = backlog / rate
                    sample.shaped_bps[node, port] = rate * 8
        return sample


def _shapers(ns: str) -> Iterator[tuple[str, int, int, float]]:
    """Each port, the packets that its shaper threw away, the bytes that wait there, and its rate in
    bytes a second.
    """
    argv = ["tc", "-n", ns, "-s", "-j", "qdisc", "show"]
    for each in json.loads(subprocess.run(argv, capture_output=True, check=True).stdout):
        if each["kind"] == "tbf":
            yield each["dev"], each["drops"], each["backlog"], each["options"]["rate"]


def _carrier_changes(ns: str) -> dict[str, int]:
    argv = ["ip", "-n", ns, "-s", "-s", "-j", "link", "show"]
    said = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    return {
        each["ifname"]: each["stats64"]["tx"]["carrier_changes"]
        for each in said
        if "stats64" in each
    }


def _senders_by_receiver(lab: Lab) -> dict[str, set[str]]:
    """Address of a receiver -> addresses of its senders, by the open sockets of all hosts.

    A TCP socket has counted what it received. Sockets of UDP are connected at the sender only.
    """
    found: dict[str, set[str]] = {}
    for host in lab.layout.hosts:
        argv = ["ss", "-N", lab.ns(host), "--no-header", "--oneline", "-n", "-i", "-t", "-u"]
        said = subprocess.run(argv, capture_output=True, check=True, text=True).stdout
        for line in said.splitlines():
            protocol, _, _, _, own, far, *counters = line.split()
            # `10.1.0.3%eth0:40000`: a socket that is bound to an interface.
            own, far = (end.rpartition(":")[0].partition("%")[0] for end in (own, far))
            if protocol == "udp":
                found.setdefault(far, set()).add(own)
            elif any(each.startswith("bytes_received:") for each in counters):
                found.setdefault(own, set()).add(far)
    return found


class Truth:
    """Judges traffic by the samples from `from_s` on, and links by all of them."""

    def __init__(self, lab: Lab, witness: Witness, from_s: float) -> None:
        self._layout = layout = lab.layout
        seen = [each for each in witness.samples if min(each.at_s.values()) >= from_s]
        ends = [end for cable in layout.cables for end in (cable.lower, cable.upper)]
        ports = [(end.node, end.port) for end in ends]
        sent = np.array([[each.sent[port] for port in ports] for each in seen], float)
        at_s = np.array([[each.at_s[node] for node, _ in ports] for each in seen])
        self._lasted_s = np.diff(at_s[:, 0])
        bps = np.diff(sent, axis=0) * 8 / np.diff(at_s, axis=0)
        self._sent_bps: dict[tuple[str, str], Floats] = dict(zip(ports, bps.T, strict=True))
        self._line_bps = {
            (end.node, end.port): (lab.uplink_mbps if layout.is_uplink(cable) else lab.rate_mbps)
            * 1e6
            for cable in layout.cables
            for end in (cable.lower, cable.upper)
        }
        self._seen = seen
        self._changes = witness.carrier_changes
        down = [cable for cable in layout.cables if cable.lower.node in layout.hosts]
        self._nics = [
            ((cable.lower.node, cable.lower.port), (cable.upper.node, cable.upper.port))
            for cable in down
        ]
        by_address = {each.lower.address: (each.lower.node, each.lower.port) for each in down}
        self._senders_to = {
            nic: [
                by_address[each] for each in witness.senders.get(address, ()) if each in by_address
            ]
            for address, nic in by_address.items()
        }

    def wrong(self) -> set[Wrong]:
        """All of it, each with its root alone."""
        late = self._late()
        hosts = {each.subject for each in late}
        # Those who waited for a late host send to it all at once.
        crowded = {each for each in self._crowded() if each.subject.partition("/")[0] not in hosts}
        return {*crowded, *self._flapping(), *late, *self._left_out()}

    def counted(self) -> list[str]:
        """What NICs and uplinks in use sent, and ports with a queue, in words."""
        lines = []
        for (node, port), bps in self._sent_bps.items():
            sends = node in self._layout.hosts or port.startswith("up")
            if not (sends or self._has_queue(node, port)):
                continue
            if self._util(node, port).mean() < _BUSY / 2:
                continue
            line_mbps = self._line_bps[node, port] / 1e6
            words = f"{node}/{port} of {line_mbps:g} Mb/s: mean {bps.mean() / 1e6:.1f}"
            if (busy := bps[self._util(node, port) > _BUSY]).size:
                words += f", when busy {busy.mean() / 1e6:.1f}, greatest {bps.max() / 1e6:.1f}"
            if (node, port) in self._seen[0].dropped:
                drops = self._seen[-1].dropped[node, port] - self._seen[0].dropped[node, port]
                queued = self._queue(node, port).mean()
                words += f"; queue in {queued:.0%} of {len(bps)} s, {drops} dropped"
            lines.append(words)
        return lines

    def _util(self, node: str, port: str) -> Floats:
        return self._sent_bps[node, port] / self._line_bps[node, port]

    # -- queues ----------------------------------------------------------------------------

    def _has_queue(self, node: str, port: str) -> bool:
        """Whether there was a queue in front of a port, again and again."""
        return bool(self._queue(node, port).mean() >= _OFTEN)

    def _queue(self, node: str, port: str) -> NDArray[np.bool_]:
        """The seconds in which a port was full and had a queue."""
        drops = np.diff([each.dropped[node, port] for each in self._seen])
        waiting_s = np.array([each.waiting_s[node, port] for each in self._seen[1:]])
        full = self._sent_bps[node, port] >= _FULL * self._shaped_bps(node, port)
        return full & ((drops > 0) | (waiting_s > _QUEUE_S))

    def _slows(self, node: str, port: str, nics: Iterable[Nic]) -> bool:
        """Whether a port has a queue while two or more of the NICs that may send over it are below
        line rate: one that sends at line rate is not slowed.
        """
        if not self._has_queue(node, port):
            return False
        during = self._queue(node, port)
        return sum(bool(self._util(*nic)[during].mean() < _UNSLOWED) for nic in nics) > 1

    def _senders(self, leaf: str) -> list[Nic]:
        layout = self._layout
        hosts = layout.hosts_of(leaf)
        return self._busy((host, layout.nic_of(n)) for host in hosts for n in range(layout.rails))

    def _busy(self, nics: Iterable[Nic]) -> list[Nic]:
        return [nic for nic in nics if self._util(*nic).mean() > _BUSY]

    def _shaped_bps(self, node: str, port: str) -> float:
        return min(each.shaped_bps[node, port] for each in self._seen)

    def _crowded(self) -> set[Wrong]:
        found: set[Wrong] = set()
        for leaf in self._layout.leaves:
            found |= self._uplinks(leaf) | self._into(leaf)
        full = [
            nic
            for nic, last_hop in self._nics
            if self._slows(*last_hop, self._busy(self._senders_to[nic]))
        ]
        in_use = [nic for nic, last_hop in self._nics if self._util(*last_hop).mean() > _BUSY]
        # In an all-to-all several meet at every receiver, now at one, now at another.
        if len(full) <= _FEW * len(in_use):
            found |= {Wrong("incast", f"{host}/{port}") for host, port in full}
        return found

    def _into(self, leaf: str) -> set[Wrong]:
        """Collisions on the links of the spines into a leaf."""
        number = self._layout.leaves.index(leaf) + 1
        ends = [(spine, f"swp{number}") for spine in self._layout.spines]
        others = [each for each in self._layout.leaves if each != leaf]
        nics = [nic for other in others for nic in self._senders(other)]
        full = [end for end in ends if self._slows(*end, nics) and not self._is_slow(*end)]
        if len(full) == len(ends):
            return set()
        return {
            Wrong("ecmp_collision", f"{spine}/{port}")
            for spine, port in full
            if not self._is_filled_by_one_link(spine, leaf)
        }

    def _is_filled_by_one_link(self, spine: str, leaf: str) -> bool:
        """Whether all that `spine` sends to `leaf` comes over one full uplink: it brings no more
        than the port sends, and what waits there is how far two shapers of one rate are apart.
        """
        uplink = self._layout.uplinks(leaf)[self._layout.spines.index(spine)]
        into = self._busy((each, uplink) for each in self._layout.leaves if each != leaf)
        return len(into) == 1 and self._has_queue(*into[0])

    def _is_slow(self, node: str, port: str) -> bool:
        return self._shaped_bps(node, port) < _SLOW * self._line_bps[node, port]

    def _uplinks(self, leaf: str) -> set[Wrong]:
        uplinks = self._layout.uplinks(leaf)
        slow = [p for p in uplinks if self._is_slow(leaf, p) and self._has_queue(leaf, p)]
        if slow:
            return {Wrong("degraded_link", f"{leaf}/{port}") for port in slow}
        senders = self._senders(leaf)
        full = [port for port in uplinks if self._slows(leaf, port, senders)]
        if len(full) == len(uplinks):
            return {Wrong("oversubscription", f"{leaf}/uplinks")}
        used = [port for port in uplinks if self._util(leaf, port).mean() > _BUSY]
        # So many flows, hashed apart, would all take one uplink once in two thousand times.
        if full == used and len(full) == 1 and len(uplinks) ** (1 - len(senders)) < 0.0005:
            return {Wrong("polarization", f"{leaf}/uplinks")}
        return {Wrong("ecmp_collision", f"{leaf}/{port}") for port in full}

    # -- links and hosts -------------------------------------------------------------------

    def _flapping(self) -> set[Wrong]:
        found: set[Wrong] = set()
        for cable in self._layout.cables:
            ends = [(end.node, end.port) for end in (cable.lower, cable.upper)]
            changes = max(self._changes.get(end, 0) for end in ends)
            name = f"{cable.lower.node}/{cable.lower.port}"
            if changes:
                found.add(Wrong("link_down", name))
            if changes >= _FLAPS:
                found.add(Wrong("flapping_link", name))
        return found

    def _late(self) -> set[Wrong]:
        """Hosts that neither sent nor received in seconds in which all others did either."""
        moved = [np.maximum(self._util(*nic), self._util(*far)) for nic, far in self._nics]
        moves = np.array(moved) > _BUSY
        found = set()
        for ((host, _), _), own in zip(self._nics, moves, strict=True):
            alone = ~own & (moves.sum(axis=0) == len(moves) - 1)
            if self._lasted_s[alone].sum() >= _LATE_S and own.any():
                found.add(Wrong("straggler", host))
        return found

    def _left_out(self) -> set[Wrong]:
        """Rails that carried less than half of what the host's busiest did."""
        left = set()
        for host in self._layout.hosts:
            nics = [self._layout.nic_of(rail) for rail in range(self._layout.rails)]
            moved = [self._util(host, nic).mean() for nic in nics]
            if max(moved) > _BUSY:
                left |= {f"r{n}" for n, share in enumerate(moved) if share < 0.5 * max(moved)}
        return {Wrong("uneven_rails", f"rails {rail}") for rail in left}
