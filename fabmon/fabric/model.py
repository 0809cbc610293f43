"""The fabric: nodes, their ports, how they are cabled, and which ports are equal-cost."""

from __future__ import annotations

from typing import Any

import msgspec

HOST = "host"
SWITCH = "switch"

RAIL = "rail"
UPLINK = "uplink"
DOWNLINK = "downlink"
MANAGEMENT = "management"
GPU = "gpu"
NVLINK = "nvlink"

FABRIC = (RAIL, UPLINK, DOWNLINK)
"""Roles of the ports that training traffic crosses between nodes; NVLinks are inside one."""

VIAS = ("ssh", "exec", "local", "http", "exporters", "eapi", "snmp", "ufm")
"""How a node is reached: a probe over ssh, over a command, here, or from an agent; or, without a
probe, from what the node or its fabric offers by itself."""

_TELL_OF_OTHERS = ("exporters", "ufm")


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """One node as the hosts file names it.

    `address` is where to connect (the name itself unless told otherwise). `via` is one of VIAS;
    `command` is the template or preset of `exec`. `speeds` are (port pattern, bits/s) overrides of
    line rates that the kernel does not know, the most specific last. `sources` changes what the
    probe reads: `+name` and `-name` beside the usual, or names alone for just those. `scrape` says
    what to fetch over HTTP, `secret` is a file with the token, password or community, `tls` is
    `yes`, `no`, `insecure` or a file with the certificates to trust; None for what suits `via`.
    """

    name: str
    address: str = ""
    user: str | None = None
    port: int | None = None
    via: str = "ssh"
    command: str | None = None
    python: str | None = None
    role: str = HOST
    group: str | None = None
    speeds: tuple[tuple[str, float], ...] = ()
    sources: tuple[str, ...] = ()
    scrape: tuple[str, ...] = ()
    secret: str | None = None
    tls: str | None = None

    @property
    def tells_of_others(self) -> bool:
        """Whether it was asked to speak for other nodes (switches seen in band, a fabric manager).

        Without being asked, a node speaks for itself alone.
        """
        return self.via in _TELL_OF_OTHERS or bool(self.sources)


class Cable(msgspec.Struct, frozen=True):
    """What is at the other end of a port, watched or not, as the most trusted source calls it.

    `port` is empty when only the node is known. `known_from` are the sources that say so, the most
    trusted first: `config`, `LLDP`, `InfiniBand discovery`, `UFM`, `neighbour MAC`.
    """

    node: str
    port: str
    known_from: tuple[str, ...]


class Port(msgspec.Struct, frozen=True):
    """One end of a cable.

    `row` is its row in every array of a `Moment`: given once, never reused, not an order to show.
    `name` is unique on the node (`eth0`, `mlx5_0`). `role` is `rail` (a host's NIC), `uplink` (a
    switch port in an ECMP group), `downlink`, `gpu` (all NVLinks of a GPU), `nvlink` (one of them)
    or `management`. `index` counts within the role from
    0; `label` is what a column is called (`r0`, `up3`). `peer` is the row at the other end, None
    when it is not watched. `info` holds facts: driver, pci, numa_node, netdev, rdma, mac ...
    `cable` is what is known of the other end; None when nobody says.
    """

    row: int
    node: str
    name: str
    kind: str
    role: str
    index: int
    label: str
    peer: int | None
    info: dict[str, Any]
    cable: Cable | None = None

    @property
    def id(self) -> str:
        """`node/port`: how a port is called in filters, exports and by programs."""
        return f"{self.node}/{self.name}"

    @property
    def display_name(self) -> str:
        """The port's name wherever a person reads: `leaf1 up5`, `gpu006 g3 nv7`, or, where it has
        no label, its node and device.
        """
        if self.role == NVLINK:
            gpu, _, link = self.name.partition("/")
            return f"{self.node} {gpu.replace('gpu', 'g', 1)} {link}".rstrip()
        return f"{self.node} {self.label or self.name}"


class EcmpGroup(msgspec.Struct, frozen=True):
    """Ports of one node that are equal-cost next hops to the same destinations."""

    node: str
    name: str
    rows: tuple[int, ...]
    destinations: int


class Node(msgspec.Struct, frozen=True):
    """A machine watched. `ports` are in physical order; empty until its first hello.

    `group` is the leaf or rack that it is shown under.
    """

    name: str
    role: str
    group: str
    ports: tuple[Port, ...]
    about: dict[str, str]


class CableReport(msgspec.Struct, frozen=True):
    """One source's word on a port: `source` and `by` whom (a node, or `file:line`), the far end."""

    source: str
    by: str
    node: str
    port: str


class Contradiction(msgspec.Struct, frozen=True):
    """Two sources that name different far ends for one port; `believed` is the more trusted."""

    row: int
    believed: CableReport
    doubted: CableReport


class Shape(msgspec.Struct, frozen=True):
    """Where nodes stand in the fabric, by name; those that are only named by others are in it too.

    `tiers` are 0 for hosts, 1 for leaves, 2 for spines, 3 for cores. `planes` and `pods` name parts
    of the fabric: planes share their hosts and no switch, pods share only the highest tier. A node
    whose place is not known is in none of them.
    """

    tiers: dict[str, int] = {}
    planes: dict[str, str] = {}
    pods: dict[str, str] = {}


class Fabric(msgspec.Struct, frozen=True):
    """What is watched and how it is cabled, at one time.

    `nodes` are in the order to show: by group, a group's switches before its hosts. `ports` are by
    row. `version` grows whenever anything in it changes.
    """

    version: int
    nodes: tuple[Node, ...]
    ports: tuple[Port, ...]
    groups: tuple[EcmpGroup, ...]
    shape: Shape = Shape()
    contradictions: tuple[Contradiction, ...] = ()

    def node(self, name: str) -> Node:
        """The node called `name`. Raises KeyError."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def group_of(self, row: int) -> EcmpGroup | None:
        """The ECMP group a port is in; None when it is in none."""
        for group in self.groups:
            if row in group.rows:
                return group
        return None
