"""The shape of a lab: which nodes there are, how they are cabled, which address is where.

Pure values; nothing here touches the machine. The plan of addresses:

==============  ===================================================================
10.99.0.0/16    management: console 10.99.0.1, then every node in order
10.1.L.0/24     hosts of leaf L, a /31 for each of their NICs (even = leaf, odd = host)
10.2.L.0/24     uplinks of leaf L, a /31 for each spine (even = leaf, odd = spine)
==============  ===================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

CONSOLE = "console"
CONSOLE_ADDRESS = "10.99.0.1"
MGMT_PORT = "mgmt0"


@dataclass(frozen=True, slots=True)
class End:
    """One end of a cable: a port of a node, with its address on the /31 of the cable."""

    node: str
    port: str
    address: str


@dataclass(frozen=True, slots=True)
class Cable:
    """A cable: the end nearer the hosts is `lower`, the one nearer the spines `upper`."""

    lower: End
    upper: End


@dataclass(frozen=True)
class Layout:
    """A leaf-spine fabric; every leaf is cabled once to every spine, and to every NIC of its hosts.

    `wires` are the uplinks (`leaf1/up3`) whose line rate the kernel knows; see `tests.lab.wire`.
    `nic` is what the names of a host's NICs begin with, `host_mgmt` the name of the one that its
    sshd is reached by.
    """

    spine_count: int = 4
    leaf_count: int = 2
    hosts_per_leaf: int = 4
    rails: int = 1
    wires: frozenset[str] = frozenset()
    nic: str = "eth"
    host_mgmt: str = MGMT_PORT

    def __post_init__(self) -> None:
        """Refuse a shape that the address plan cannot number."""
        for name in ("spine_count", "leaf_count", "hosts_per_leaf", "rails"):
            if not 1 <= getattr(self, name) <= 100:
                raise ValueError(f"{name} must be 1 to 100, not {getattr(self, name)}")
        if self.hosts_per_leaf * self.rails > 127:
            raise ValueError("a leaf takes 127 NICs at most")

    @cached_property
    def spines(self) -> tuple[str, ...]:
        """spine1, spine2, ..."""
        return tuple(f"spine{n}" for n in range(1, self.spine_count + 1))

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """leaf1, leaf2, ..."""
        return tuple(f"leaf{n}" for n in range(1, self.leaf_count + 1))

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """gpu001, gpu002, ...: the first `hosts_per_leaf` are on leaf1, and so on."""
        return tuple(f"gpu{n:03d}" for n in range(1, self.leaf_count * self.hosts_per_leaf + 1))

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Every node but the console: hosts, leaves, spines."""
        return self.hosts + self.leaves + self.spines

    @cached_property
    def cables(self) -> tuple[Cable, ...]:
        """Every cable of the fabric (management is not part of it)."""
        cables = []
        for leaf_n, leaf in enumerate(self.leaves, 1):
            nics = [(host, rail) for host in self.hosts_of(leaf) for rail in range(self.rails)]
            for n, (host, rail) in enumerate(nics, 1):
                net = f"10.1.{leaf_n}"
                lower = End(host, self.nic_of(rail), f"{net}.{2 * n + 1}")
                cables.append(Cable(lower, End(leaf, f"down{n}", f"{net}.{2 * n}")))
            for n, spine in enumerate(self.spines, 1):
                net = f"10.2.{leaf_n}"
                lower = End(leaf, f"up{n}", f"{net}.{2 * n}")
                cables.append(Cable(lower, End(spine, f"swp{leaf_n}", f"{net}.{2 * n + 1}")))
        return tuple(cables)

    def nic_of(self, rail: int) -> str:
        """The name of a host's NIC."""
        return f"{self.nic}{rail}"

    def mgmt_port(self, node: str) -> str:
        """The name of the port that the sshd of `node` is reached by."""
        return self.host_mgmt if node in self.hosts else MGMT_PORT

    def is_uplink(self, cable: Cable) -> bool:
        """Whether a cable is between a leaf and a spine."""
        return cable.upper.node in self.spines

    def role(self, node: str) -> str:
        """``host`` or ``switch``."""
        return "host" if node in self.hosts else "switch"

    def hosts_of(self, leaf: str) -> tuple[str, ...]:
        """The hosts cabled to `leaf`, in port order."""
        start = self.leaves.index(leaf) * self.hosts_per_leaf
        return self.hosts[start : start + self.hosts_per_leaf]

    def leaf_of(self, host: str) -> str:
        """The leaf that `host` is cabled to."""
        return self.leaves[self.hosts.index(host) // self.hosts_per_leaf]

    def uplinks(self, leaf: str) -> tuple[str, ...]:
        """up1, up2, ...: upN goes to spineN."""
        if leaf not in self.leaves:
            raise ValueError(f"{leaf} is not a leaf of this lab")
        return tuple(f"up{n}" for n in range(1, self.spine_count + 1))

    def prefix(self, leaf: str) -> str:
        """The prefix that holds every host of `leaf`."""
        return f"10.1.{self.leaves.index(leaf) + 1}.0/24"

    def mgmt_address(self, node: str) -> str:
        """The management address of `node`, where its sshd listens."""
        if node == CONSOLE:
            return CONSOLE_ADDRESS
        number = self.nodes.index(node) + 10
        return f"10.99.{number // 250}.{number % 250 + 1}"

    def ends(self, node: str) -> tuple[tuple[End, End], ...]:
        """(own end, far end) of every cable of `node`."""
        pairs = []
        for cable in self.cables:
            if cable.lower.node == node:
                pairs.append((cable.lower, cable.upper))
            elif cable.upper.node == node:
                pairs.append((cable.upper, cable.lower))
        return tuple(pairs)

    def fabric_address(self, host: str, rail: int = 0) -> str:
        """The address of a host's NIC, where its traffic goes."""
        return self.ends(host)[rail][0].address

    def port_to(self, leaf: str, host: str, rail: int = 0) -> str:
        """The port of `leaf` that a NIC of `host` is cabled to."""
        return f"down{self.hosts_of(leaf).index(host) * self.rails + rail + 1}"

    def is_wire(self, cable: Cable) -> bool:
        """Whether the kernel knows the line rate of a cable."""
        return f"{cable.lower.node}/{cable.lower.port}" in self.wires
