"""The hardware of a simulated fabric: ports in flat arrays, and their cabling.

Ports are numbered: the hosts' NICs, host by host, then each leaf's ports (downlinks, then uplinks),
then each spine's. A direction of a link has the number of the port that sends into it, so one
number is a port and its outgoing link; a port receives what its peer sends.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fabmon.feeds.demo.scenario import FAT_TREE, RAIL, FabricShape, ScenarioError, host_digits

Indices = NDArray[np.intp]

_MOST_PORTS = 400_000
_BYTES_PER_S = 1e9 / 8


class Hardware:
    """The hardware and its planned cabling; constant. Raises ScenarioError for an impossible
    topology."""

    def __init__(self, topology: FabricShape) -> None:
        t = topology
        if t.hosts - t.storage < 2 or t.rails < 1 or t.speed_gbps <= 0 or t.oversubscription <= 0:
            raise ScenarioError(
                "topology: needs 2 hosts, 1 rail, a speed and an oversubscription or more"
            )
        self.topology = t
        self.is_ib = t.kind == FAT_TREE
        self.by_rail = t.kind == RAIL
        self.routing = t.routing or ("static" if self.is_ib else "hash")
        self.hosts, self.rails = t.hosts, t.rails
        self.per_leaf = t.hosts_per_leaf or _per_leaf(t)
        if t.hosts % self.per_leaf:
            raise ScenarioError(
                f"topology: {t.hosts} hosts do not fill leaves of {self.per_leaf};"
                " change hosts or hosts_per_leaf"
            )
        pods = t.hosts // self.per_leaf
        self.leaves = pods * t.rails if self.by_rail else pods
        self.down = self.per_leaf if self.by_rail else self.per_leaf * t.rails
        uplink_gbps = t.uplink_gbps or t.speed_gbps
        wanted = max(1, math.ceil(self.down * t.speed_gbps / uplink_gbps / t.oversubscription))
        self.spines = t.spines or wanted // _parallel(wanted, self.leaves)
        self.parallel = max(1, round(wanted / self.spines))
        self.up = self.spines * self.parallel
        self.nics = t.hosts * t.rails
        self.first_leaf_port = self.nics
        self.leaf_ports = self.down + self.up
        self.first_spine_port = self.nics + self.leaves * self.leaf_ports
        self.spine_ports = self.leaves * self.parallel
        self.ports = self.first_spine_port + self.spines * self.spine_ports
        if self.ports > _MOST_PORTS:
            raise ScenarioError(f"topology: {self.ports} ports are more than {_MOST_PORTS}")
        self.speed = np.full(self.ports, uplink_gbps * _BYTES_PER_S)
        self.speed[: self.nics] = t.speed_gbps * _BYTES_PER_S
        """Bytes/s of each port, one direction."""
        for leaf in range(self.leaves):
            start = self.first_leaf_port + leaf * self.leaf_ports
            self.speed[start : start + self.down] = t.speed_gbps * _BYTES_PER_S
        digits = host_digits(t.hosts)
        self.training_hosts = t.hosts - t.storage
        self.host_names = [f"gpu{n + 1:0{digits}}" for n in range(self.training_hosts)]
        self.host_names += [f"stor{n + 1:0{digits}}" for n in range(t.storage)]
        self.leaf_names = [f"leaf{n + 1}" for n in range(self.leaves)]
        self.spine_names = [f"spine{n + 1}" for n in range(self.spines)]

    @cached_property
    def cabling(self) -> Indices:
        """[ports] the port at the other end, as planned."""
        peer = np.full(self.ports, -1, np.intp)
        nic = np.arange(self.nics)
        host, rail = nic // self.rails, nic % self.rails
        pod, place = host // self.per_leaf, host % self.per_leaf
        if self.by_rail:
            port = self.leaf_port(pod * self.rails + rail, place)
        else:
            port = self.leaf_port(pod, place * self.rails + rail)
        peer[nic] = port
        leaf, up = (each.ravel() for each in np.indices((self.leaves, self.up)))
        ours = self.leaf_port(leaf, self.down + up)
        spine, cable = up // self.parallel, up % self.parallel
        theirs = self.first_spine_port + spine * self.spine_ports + leaf * self.parallel + cable
        peer[ours] = theirs
        peer[peer[peer >= 0]] = np.flatnonzero(peer >= 0)
        return peer

    def leaf_port(self, leaf: Indices | int, local: Indices | int) -> Indices:
        """The port number of port `local` of a leaf; downlinks come first."""
        return np.asarray(self.first_leaf_port + np.asarray(leaf) * self.leaf_ports + local)

    def uplinks(self, leaf: int) -> Indices:
        """The uplinks of a leaf."""
        return self.leaf_port(leaf, np.arange(self.down, self.leaf_ports))

    def leaf_of(self, port: Indices) -> Indices:
        """The leaf of a leaf's port."""
        leaf: Indices = (port - self.first_leaf_port) // self.leaf_ports
        return leaf

    def spine_of(self, port: Indices) -> Indices:
        """The spine of a spine's port."""
        spine: Indices = (port - self.first_spine_port) // self.spine_ports
        return spine

    def node_of(self, port: int) -> str:
        """The name of a port's node."""
        if port < self.nics:
            return self.host_names[port // self.rails]
        if port < self.first_spine_port:
            return self.leaf_names[(port - self.first_leaf_port) // self.leaf_ports]
        return self.spine_names[(port - self.first_spine_port) // self.spine_ports]

    def port_name(self, port: int) -> str:
        """The device name of a port on its node."""
        if port < self.nics:
            return f"mlx5_{port % self.rails}"
        if port < self.first_spine_port:
            return f"swp{(port - self.first_leaf_port) % self.leaf_ports + 1}"
        return f"swp{(port - self.first_spine_port) % self.spine_ports + 1}"

    def port_label(self, port: int) -> str:
        """The short label of a port: `r3` of a host, `up3` or `dn1` of a switch."""
        if port < self.nics:
            return f"r{port % self.rails}"
        if port >= self.first_spine_port:
            return f"dn{(port - self.first_spine_port) % self.spine_ports + 1}"
        local = (port - self.first_leaf_port) % self.leaf_ports
        return f"dn{local + 1}" if local < self.down else f"up{local - self.down + 1}"

    def port_id(self, port: int) -> str:
        """The id of a port: `node/port`."""
        return f"{self.node_of(port)}/{self.port_name(port)}"

    def find_node(self, name: str) -> tuple[str, int]:
        """(`host`, `leaf` or `spine`, its number); `gpu7` is `gpu007`. Raises ScenarioError."""
        word = name.rstrip("0123456789")
        number = int(name[len(word) :] or 0)
        for kind, prefix, before, count in (
            ("host", "gpu", 0, self.training_hosts),
            ("host", "stor", self.training_hosts, self.hosts - self.training_hosts),
            ("leaf", "leaf", 0, self.leaves),
            ("spine", "spine", 0, self.spines),
        ):
            if word == prefix and 1 <= number <= count:
                return kind, before + number - 1
        raise ScenarioError(
            f"where: no node {name!r}; there are {self.host_names[0]} to {self.host_names[-1]},"
            f" leaf1 to {self.leaf_names[-1]}, spine1 to {self.spine_names[-1]}"
        )

    def find_port(self, where: str) -> int:
        """The number of a port given as `leaf1/up3`, `leaf1/dn2`, `gpu003/r5` or by device name.

        Raises ScenarioError.
        """
        name, _, port = where.partition("/")
        kind, number = self.find_node(name)
        first, count, labels = {
            "host": (number * self.rails, self.rails, ("r", "mlx5_")),
            "leaf": (int(self.leaf_port(number, 0)), self.leaf_ports, ("swp",)),
            "spine": (
                self.first_spine_port + number * self.spine_ports,
                self.spine_ports,
                ("swp", "dn"),
            ),
        }[kind]
        local = _number(port, labels, from_one=kind != "host")
        if local is None and kind == "leaf":
            local = _number(port, ("dn",), from_one=True)
            lead = _number(port, ("up",), from_one=True)
            local = self.down + lead if lead is not None else local
        if local is None or not 0 <= local < count:
            raise ScenarioError(f"where: {name} has no port {port!r} ({count} ports)")
        return first + local


def _number(text: str, prefixes: tuple[str, ...], *, from_one: bool) -> int | None:
    for prefix in prefixes:
        rest = text.removeprefix(prefix)
        if rest != text and rest.isdecimal():
            return int(rest) - from_one
    return None


def _divisor(of: int, most: int) -> int:
    """The greatest divisor of `of` that is at most `most`."""
    return next(n for n in range(max(1, min(of, most)), 0, -1) if of % n == 0)


def _per_leaf(t: FabricShape) -> int:
    """Hosts per leaf: at least two leaves, each with at most 32 downlinks where the number of hosts
    allows."""
    most = 32 if t.kind == RAIL else max(1, 32 // t.rails)
    return _divisor(t.hosts, min(most, t.hosts // 2))


def _parallel(uplinks: int, leaves: int) -> int:
    """Cables between a leaf and a spine, chosen for few spines of about 64 ports."""
    return _divisor(uplinks, max(1, min(uplinks // 4, 64 // leaves, 4)))
