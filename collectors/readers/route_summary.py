"""The kernel's routes, neighbours and addresses, reduced to what a fabric map needs."""

from __future__ import annotations

import errno
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Set, Tuple, Union

from collectors.readers.netlink import (
    GETADDR,
    GETLINK,
    GETNEIGH,
    GETNEXTHOP,
    GETROUTE,
    INET,
    INET6,
    MAIN_TABLE,
    Address,
    Hop,
    Link,
    Neighbour,
    Netlink,
    Nexthop,
    Route,
)
from collectors.readers.ports import natural

_MAX_DESTINATIONS = 16
_MAX_NEIGHBOURS = 64
"""Of one interface. More than a few mean a shared segment, not one neighbour at the cable's end."""

_RESOLVED = 0x02 | 0x04 | 0x08 | 0x10 | 0x80
"""NUD states of an entry that is or was valid: reachable, stale, delay, probe, permanent."""

_DEFAULT = ("0.0.0.0/0", "::/0")

_FAMILIES = {INET: "inet", INET6: "inet6"}

Info = Dict[str, Any]


class RouteSummary(NamedTuple):
    """The facts that the source `routes` reports, as the `info` of its objects.

    `names` are the interfaces examined, by index; `above` those of which only the addresses are
    reported.
    """

    ecmp: List[Info]
    neighbours: List[Info]
    addresses: List[Info]
    names: Dict[int, str]
    above: Mapping[int, str] = MappingProxyType({})

    def differs(self, there: bool, fact: Union[Neighbour, Address]) -> bool:
        """Whether a neighbour or an address, which exists now or is gone, differs from this."""
        dev = self.names.get(fact.ifindex)
        if isinstance(fact, Address):
            dev = dev or self.above.get(fact.ifindex)
            if dev is None or _is_loopback(fact.address):
                return False
            reported = any(
                item["dev"] == dev and fact.address in item["addresses"] for item in self.addresses
            )
            return reported != there
        if dev is None:
            return False
        macs = {item["ip"]: item["mac"] for item in self.neighbours if item["dev"] == dev}
        if len(macs) >= _MAX_NEIGHBOURS:
            return False
        # One that went silent keeps the MAC that was last seen.
        resolved = there and fact.mac is not None and fact.state & _RESOLVED
        return bool(resolved) and macs.get(fact.ip) != fact.mac


def summarise_routes(devices: Set[str], above: Mapping[str, Sequence[str]]) -> RouteSummary:
    """Ask the kernel about the interfaces `devices`, and for the addresses of those `above` them.

    `above` maps each upper interface to those of `devices` below it. Raises OSError.
    """
    netlink = Netlink()
    try:
        links = [fact for fact in netlink.dump(GETLINK) if isinstance(fact, Link)]
        names = {link.ifindex: link.name for link in links}
        ours = {index: name for index, name in names.items() if name in devices}
        groups, defaults = _groups(netlink, names)
        more = {index: name for index, name in names.items() if name in above}
        addresses = _addresses(netlink, {**ours, **more})
        for item in addresses:
            if item["dev"] in above:
                item["over"] = list(above[item["dev"]])
            if item["dev"] in defaults:
                item["default_route"] = True
        return RouteSummary(groups, _neighbours(netlink, ours), addresses, ours, more)
    finally:
        netlink.close()


def _groups(netlink: Netlink, names: Dict[int, str]) -> Tuple[List[Info], Set[str]]:
    """The sets of two or more equal-cost next hops; the interfaces of default routes."""
    nexthops = _nexthops(netlink)
    defaults: Set[str] = set()
    groups: Dict[Tuple[int, Tuple[Tuple[str, str, int], ...]], Info] = {}
    for family in (INET, INET6):
        for route in netlink.dump(GETROUTE, family):
            if not isinstance(route, Route):
                continue
            hops = _hops_of(nexthops, route.nexthop_id) if route.nexthop_id else list(route.hops)
            # A rail with policy routing also has a default route, in a table of its own.
            if route.destination in _DEFAULT and route.table == MAIN_TABLE:
                defaults.update(names.get(hop.ifindex, "") for hop in hops)
            if len(hops) < 2:
                continue
            members = [_member(hop, names) for hop in hops]
            members.sort(key=lambda item: (natural(item["dev"]), item["via"] or ""))
            key = (
                family,
                tuple((item["dev"], item["via"] or "", item["weight"]) for item in members),
            )
            group = groups.setdefault(
                key,
                {
                    "family": _FAMILIES[family],
                    "members": members,
                    "destinations": [],
                    "destinations_count": 0,
                },
            )
            group["destinations_count"] += 1
            if len(group["destinations"]) < _MAX_DESTINATIONS:
                group["destinations"].append(route.destination)
    return [groups[key] for key in sorted(groups)], defaults


def _member(hop: Hop, names: Dict[int, str]) -> Info:
    member: Info = {
        "dev": names.get(hop.ifindex, f"if{hop.ifindex}"),
        "via": hop.via,
        "weight": hop.weight,
    }
    if not hop.alive:
        member["dead"] = True
    return member


def _nexthops(netlink: Netlink) -> Dict[int, Nexthop]:
    """The nexthop objects by id; none before Linux 5.3, which does not have them."""
    found: Dict[int, Nexthop] = {}
    try:
        for item in netlink.dump(GETNEXTHOP):
            if isinstance(item, Nexthop):
                found[item.id] = item
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
    return found


def _hops_of(nexthops: Dict[int, Nexthop], identity: int) -> List[Hop]:
    """The hops of a nexthop object; a group refers to others, which are no groups themselves."""
    item = nexthops.get(identity)
    if item is None:
        return []
    if item.hop is not None:
        return [item.hop]
    hops = []
    for member, weight in item.group:
        other = nexthops.get(member)
        if other is not None and other.hop is not None:
            hops.append(other.hop._replace(weight=weight))
    return hops


def _neighbours(netlink: Netlink, names: Dict[int, str]) -> List[Info]:
    """Entries with a MAC, by interface and address."""
    found: Dict[str, List[Info]] = {}
    for item in netlink.dump(GETNEIGH):
        if not isinstance(item, Neighbour) or item.ifindex not in names or item.mac is None:
            continue
        if item.state & _RESOLVED:
            dev = names[item.ifindex]
            found.setdefault(dev, []).append({"dev": dev, "ip": item.ip, "mac": item.mac})
    return [
        item
        for dev in sorted(found, key=natural)
        for item in sorted(found[dev], key=lambda item: natural(item["ip"]))[:_MAX_NEIGHBOURS]
    ]


def _addresses(netlink: Netlink, names: Dict[int, str]) -> List[Info]:
    """The addresses of each interface that has any, without the loopback's own."""
    found: Dict[str, List[str]] = {}
    for item in netlink.dump(GETADDR):
        if not isinstance(item, Address) or _is_loopback(item.address):
            continue
        if item.ifindex in names:
            found.setdefault(names[item.ifindex], []).append(item.address)
    return [
        {"dev": dev, "addresses": sorted(found[dev], key=natural)}
        for dev in sorted(found, key=natural)
    ]


def _is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address."""
    return address.startswith("127.") or address == "::1/128"
