"""ECMP groups, neighbours and addresses of this machine.

There are no counters here. The objects have facts in `info` and no metrics:

    ecmp        {family, members: [{dev, via, weight[, dead]}], destinations, destinations_count
                [, hash_policy][, adaptive_routing]}
    neighbour   {dev, ip, mac}
    addresses   {dev, addresses[, over][, default_route]}

A group is a set of equal-cost next hops, however many routes use it and whether they list the hops
(multipath routes) or share a nexthop object. `destinations` names at most 16 of the prefixes.
`hash_policy` is the kernel's fib_multipath_hash_policy for that family; not on Cumulus, where the
hardware hashes by switchd's configuration. `adaptive_routing` names the file of switchd that turns
adaptive routing on.
Addresses are those of the ports' interfaces and bonds, of upper interfaces (a VLAN, a bridge), then
with `over`, the interfaces below, and of the loopback, whose `over` is empty. A tree at another
root carries the same facts in `<root>/routes.json`, as
`{"ecmp": [...], "neighbours": [...], "addresses": [...]}`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from typing import Any, Dict, List, Optional, Set, Tuple

from collectors.hostfs import HostFS
from collectors.readers import ports
from collectors.readers.netlink import Address, ChangeListener, Fact, Neighbour
from collectors.readers.route_summary import RouteSummary, summarise_routes
from collectors.source import Failed, Faults, NoData, Source, from_oserror
from collectors.wire import Object

_CAPTURE = "routes.json"
_CUMULUS = "etc/cumulus"
_ADAPTIVE = "switchd.d/adaptive_routing.conf"
_ADAPTIVE_ON = re.compile(
    r"^[ \t]*adaptive_routing\.enable[ \t]*=[ \t]*TRUE\b", re.MULTILINE | re.IGNORECASE
)
"""NVIDIA, Cumulus Linux User Guide, "Equal Cost Multipath Load Sharing", "Adaptive Routing"."""

_UPPER = "upper_"
"""Prefix of the entries for upper interfaces in an interface's directory in sysfs."""

_MAX_DUMP_SHARE = 0.02
"""Greatest share of the time that dumps may take: flapping routes are dumped less often."""


class Routes(Source):
    """The facts of the live machine over rtnetlink, or those of a tree from its file."""

    name = "routes"
    every = 10
    deadline_s = 2.0

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._listener: Optional[ChangeListener] = None
        self._known: Optional[RouteSummary] = None
        self._changes = 0
        self._pending = False
        self._look_from_s = 0.0

    def discover(self) -> List[Object]:
        """The groups, the neighbours with a MAC, and the addresses, of the ports' interfaces."""
        start_s = time.monotonic()
        try:
            self._known = self._look() if self.host.is_live else self._from_file()
        except OSError as error:
            raise from_oserror(error) from error
        duration_s = time.monotonic() - start_s
        self._look_from_s = start_s + duration_s / _MAX_DUMP_SHARE
        objects = [
            *(
                Object(f"ecmp/{number}", "ecmp", None, {**group, **self._selection(group)}, ())
                for number, group in enumerate(self._known.ecmp, 1)
            ),
            *(
                Object(f"neighbour/{item['dev']}/{item['ip']}", "neighbour", None, item, ())
                for item in self._known.neighbours
            ),
            *(
                Object(f"addresses/{item['dev']}", "addresses", None, item, ())
                for item in self._known.addresses
            ),
        ]
        if not objects:
            raise NoData("no routes, neighbours or addresses on any port")
        return objects

    def read(self, faults: Faults) -> List[Optional[int]]:
        """No values: all facts are in the objects."""
        return []

    def signature(self) -> object:
        """Changes after an announcement of the kernel that changes the result of `discover`."""
        if not self.host.is_live:
            with contextlib.suppress(OSError):
                state = os.stat(self.host.path(_CAPTURE))
                return state.st_mtime_ns, state.st_size
            return None
        with contextlib.suppress(OSError):
            if self._listener is None:
                self._listener = ChangeListener()
            facts = self._listener.drain()
            if facts is None or any(self._is_new(there, fact) for there, fact in facts):
                self._pending = True
        if self._pending and time.monotonic() >= self._look_from_s:
            self._pending = False
            self._changes += 1
        return self._changes, ports.signature(self.host)

    def close(self) -> None:
        """Stop listening to the kernel's announcements."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _is_new(self, there: bool, fact: Fact) -> bool:
        """Whether an announcement differs from the known facts.

        Neighbours change state all the time and addresses are renewed; that does not count.
        """
        if self._known is None:
            return False
        if isinstance(fact, (Neighbour, Address)):
            return self._known.differs(there, fact)
        return True

    def _look(self) -> RouteSummary:
        devices = _devices(self.host)
        return summarise_routes(devices, _above(self.host, devices))

    def _selection(self, group: Dict[str, Any]) -> Dict[str, Any]:
        """How a link of a group is selected, as far as files report it."""
        if self.host.exists(_CUMULUS):
            text = self.host.text(_CUMULUS, _ADAPTIVE) or ""
            is_on = _ADAPTIVE_ON.search(text) is not None
            return {"adaptive_routing": f"/{_CUMULUS}/{_ADAPTIVE}"} if is_on else {}
        version = "ipv6" if group.get("family") == "inet6" else "ipv4"
        policy = self.host.number("proc/sys/net", version, "fib_multipath_hash_policy")
        return {} if policy is None else {"hash_policy": policy}

    def _from_file(self) -> RouteSummary:
        text = self.host.text(_CAPTURE)
        if text is None:
            raise NoData(f"no {_CAPTURE} in this tree")
        try:
            facts: Dict[str, List[Dict[str, Any]]] = json.loads(text)
            return RouteSummary(facts["ecmp"], facts["neighbours"], facts["addresses"], {})
        except (ValueError, KeyError, TypeError) as error:
            raise Failed(f"{_CAPTURE}: {error}") from error


def _devices(fs: HostFS) -> Set[str]:
    """The interfaces of the ports, and the bonds above them."""
    devices: Set[str] = set()
    for port in ports.find_ports(fs):
        devices.update(filter(None, (port.netdev, port.info.get("bond"))))
    return devices


def _above(fs: HostFS, devices: Set[str]) -> Dict[str, List[str]]:
    """Upper interface -> those of `devices` below it; the loopback with none."""
    found: Dict[str, Set[str]] = {"lo": set()}
    left: List[Tuple[str, str]] = [(name, name) for name in devices]
    while left:
        name, base = left.pop()
        for entry in fs.names(ports.NET, name):
            upper = entry[len(_UPPER) :]
            if not entry.startswith(_UPPER) or upper in devices:
                continue
            if base not in found.setdefault(upper, set()):
                found[upper].add(base)
                left.append((upper, base))
    return {name: sorted(bases, key=ports.natural) for name, bases in found.items()}
