"""The fabric: nodes, their ports, their cabling, and their ECMP groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import msgspec

from fabmon.fabric.forwarding_tables import ForwardingTables
from fabmon.fabric.routing_mode import NOT_REPORTED, Routing

HOST = "host"
SWITCH = "switch"

RAIL = "rail"
UPLINK = "uplink"
DOWNLINK = "downlink"
STORAGE = "storage"
FRONTEND = "frontend"
MEMBER = "member"
MANAGEMENT = "management"
GPU = "gpu"
NVLINK = "nvlink"

FABRIC = (RAIL, UPLINK, DOWNLINK)
"""Roles of ports that carry training traffic between nodes. NVLinks are inside a node."""

ROLE_ORDER = (
    *(RAIL, GPU, NVLINK, UPLINK, DOWNLINK),
    *(STORAGE, FRONTEND, MEMBER, MANAGEMENT),
)
"""Roles in the order in which a node's ports are listed."""


class PortRole(NamedTuple):
    """The role of a port, and one line that says why."""

    role: str
    reason: str


VIAS = ("ssh", "exec", "local", "http", "exporters", "eapi", "snmp", "gnmi", "sflow", "ufm")
"""How a node is reached: by a probe over SSH, over a command, on this machine, or in an agent; or
without a probe, from exporters, a switch or a fabric manager."""

_REPORT_OTHER_NODES = ("exporters", "ufm")


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the hosts file.

    `address` is where to connect (default: the name). `via` is one of VIAS; `command` is the
    template or preset of `exec`. `speeds` are (port pattern, bits/s) overrides of line rates, the
    most specific last. `sources` changes what the probe reads: `+name` and `-name` change the
    default set, names alone replace it. `scrape` lists what to fetch over HTTP, `secret` is a file
    with the token, password or community, `tls` is `yes`, `no`, `insecure` or a file with CA
    certificates; None is the default of `via`. `nccl_inspector` is a directory of the node with
    files of NCCL Inspector, empty for none.
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
    nccl_inspector: str = ""

    @property
    def reports_other_nodes(self) -> bool:
        """Whether the hosts file lets it report other nodes (switches in band, a fabric manager).

        By default a node may report only itself.
        """
        return self.via in _REPORT_OTHER_NODES or bool(self.sources)


class Cable(msgspec.Struct, frozen=True):
    """The far end of a port, watched or not, as the most trusted source names it.

    `port` is empty when only the node is known. `known_from` are the sources that report it, the
    most trusted first: `config`, `LLDP`, `InfiniBand discovery`, `UFM`, `neighbour MAC`,
    `link subnet`.
    """

    node: str
    port: str
    known_from: tuple[str, ...]


class Port(msgspec.Struct, frozen=True):
    """One end of a cable.

    `row` is its row in every array of a `Snapshot`: assigned once, never reused, not a display
    order. `name` is unique on the node (`eth0`, `mlx5_0`). `role` of a host's NIC is `rail`,
    `storage`, `frontend`, `management` or `member` (of a bond that is one RDMA device); that of a
    switch's port `uplink` (to a higher tier), `downlink` or `management`; `gpu` has all NVLinks of
    a GPU, `nvlink` is one of them. `role_reason` says why. `index` counts within the role from 0,
    of an NVLink within its GPU; `label` is its short name (`r0`, `up3`). `peer` is the row at the
    other end, None when it is not watched. `info` has facts: driver, pci, numa_node, netdev, rdma,
    mac ... `cable` is the far end; None when it is unknown.
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
    role_reason: str = ""

    @property
    def id(self) -> str:
        """`node/port`: the port in filters, exports and output for programs."""
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
    """Ports of one node that are equal-cost next hops to the same destinations; `routing` is how
    that node distributes traffic over them."""

    node: str
    name: str
    rows: tuple[int, ...]
    destinations: int
    routing: Routing = NOT_REPORTED


class Node(msgspec.Struct, frozen=True):
    """A watched machine. `ports` are in physical order; empty until its first hello.

    `group` is the leaf or rack that it is shown under. `limits` are sentences, the source first, on
    what is not observable of it although nothing failed.
    """

    name: str
    role: str
    group: str
    ports: tuple[Port, ...]
    about: dict[str, str]
    limits: tuple[str, ...] = ()

    def gpu_links(self) -> list[tuple[Port, list[Port]]]:
        """Each GPU that has NVLinks or xGMI links, with these, in display order."""
        gpus = {port.name: port for port in self.ports if port.role == GPU}
        links: dict[str, list[Port]] = {}
        for port in self.ports:
            if port.role == NVLINK:
                links.setdefault(port.name.partition("/")[0], []).append(port)
        return [(gpu, links[name]) for name, gpu in gpus.items() if name in links]


class CableReport(msgspec.Struct, frozen=True):
    """What one source reports as the far end of a port. `by` is the node or `file:line` it is
    from."""

    source: str
    by: str
    node: str
    port: str


class Contradiction(msgspec.Struct, frozen=True):
    """Two sources that report different far ends of a port; `believed` is the more trusted one."""

    row: int
    believed: CableReport
    doubted: CableReport


class Shape(msgspec.Struct, frozen=True):
    """The place of nodes in the fabric, by name, including nodes that are not watched.

    `tiers` are 0 for hosts, 1 for leaves, 2 for spines, 3 for cores. `planes` and `pods` name parts
    of the fabric: planes share their hosts and no switch, pods share only the highest tier, or are
    the groups of a dragonfly. A node whose place is unknown is in none of them. `flat_links` are
    the cables (switch, far switch) of fabrics without tiers: `local` or the far group in a
    dragonfly, `dimension 1` ... in a torus, `mesh` else.
    """

    tiers: dict[str, int] = {}
    planes: dict[str, str] = {}
    pods: dict[str, str] = {}
    flat_links: dict[tuple[str, str], str] = {}


class Fabric(msgspec.Struct, frozen=True):
    """The watched nodes and their cabling at one time.

    `nodes` are in display order: by group, a group's switches before its hosts. `ports` are by
    row. `routing` is the routing mode of the nodes for which it is known, by name. `forwarding`
    are the tables of InfiniBand switches, None where no node reports them. `version` grows whenever
    anything in it changes.
    """

    version: int
    nodes: tuple[Node, ...]
    ports: tuple[Port, ...]
    groups: tuple[EcmpGroup, ...]
    shape: Shape = Shape()
    contradictions: tuple[Contradiction, ...] = ()
    routing: dict[str, Routing] = {}
    forwarding: ForwardingTables | None = None

    def rows_of(self, ids: Collection[str]) -> dict[str, int]:
        """The rows of ports by id, of those that exist. Only their nodes are read."""
        nodes = {name.partition("/")[0] for name in ids}
        return {
            port.id: port.row
            for node in self.nodes
            if node.name in nodes
            for port in node.ports
            if port.id in ids
        }

    def node(self, name: str) -> Node:
        """The node with this name. Raises KeyError."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    def display_names(self, ids: Iterable[str]) -> list[str]:
        """Ids of ports (`leaf1/swp5`) as display names (`leaf1 up5`); other names as they are."""
        wanted = list(ids)
        nodes = {each.partition("/")[0] for each in wanted if "/" in each}
        known = {
            port.id: port.display_name
            for node in (self.nodes if nodes else ())
            if node.name in nodes
            for port in node.ports
        }
        return [known.get(each, each) for each in wanted]

    def watched_cables(self) -> int:
        """The number of cables between nodes with a watched end; two watched ends are one cable."""
        ends = {port.row for port in self.ports if port.role in FABRIC and port.node}
        return sum(
            self.ports[row].peer not in ends or row < (self.ports[row].peer or 0) for row in ends
        )

    def group_of(self, row: int) -> EcmpGroup | None:
        """The ECMP group of a port, or None."""
        for group in self.groups:
            if row in group.rows:
                return group
        return None

    def routing_of(self, row: int) -> Routing:
        """How the traffic of a port's node is distributed over parallel links."""
        return self.routing.get(self.ports[row].node, NOT_REPORTED)
