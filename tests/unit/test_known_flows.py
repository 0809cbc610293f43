"""Full links on a fabric whose forwarding tables and queue pairs say which flows are on them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from collectors.readers.ib_forwarding import pack_table
from collectors.wire import Object
from fabmon.analysis.finding import Finding
from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import Hello
from tests.builders import GBPS, METRICS, LeafSpine, Watched, hello
from tests.connections import Wires

LEAVES = ("leaf1", "leaf2")
HOSTS = tuple(f"gpu{number:03}" for number in range(1, 9))
SPINES = 4
SECONDS = 20

RING = [(f"gpu00{number}", f"gpu00{number + 4}") for number in range(1, 5)]
"""Pairs of senders and receivers, from the first leaf to the second."""

UPLINKS = {"gpu005": 1, "gpu006": 1, "gpu007": 2, "gpu008": 3}
"""The uplink of leaf1 by which the tables send to each host of leaf2."""


class Infiniband(LeafSpine):
    """Two leaves of four hosts and four spines, of 400G. leaf2 sends everything over up4.

    `pairs` are connections. Nodes `silent` do not report queue pairs, nor does leaf1 tables where
    it `has_tables` not; a NIC has `lids` LIDs.
    """

    def __init__(
        self,
        pairs: Sequence[tuple[str, str]],
        silent: Sequence[str] = (),
        has_tables: bool = True,
        lids: int = 1,
    ) -> None:
        super().__init__(uplinks=SPINES, hosts=0, rate_bps=400 * GBPS)
        self.servers = list(HOSTS)
        self._silent, self._has_tables, self._lids = silent, has_tables, lids
        self._peer.clear()
        for leaf, name in enumerate(LEAVES):
            for number in range(1, 5):
                self._cable(f"{name}/swp{number}", f"{HOSTS[4 * leaf + number - 1]}/mlx5_0")
                self._cable(f"{name}/swp{4 + number}", f"spine{number}/swp{leaf + 1}")
        self._wires = Wires()
        for number, (src, dst) in enumerate(pairs):
            self._wires.connect(
                f"{src}/mlx5_0", f"{dst}/mlx5_0", 70 + number, 170 + number, job="8801"
            )

    @property
    def hosts(self) -> list[Host]:
        leaf1, *others = (self._host(name, "switch") for name in (*LEAVES, *self.spines))
        reader = msgspec.structs.replace(leaf1, sources=("+ib_fabric",))
        return [*(self._host(name, "host") for name in HOSTS), reader, *others]

    def hellos(self) -> dict[str, Hello]:
        objects: dict[str, list[Object]] = {}
        for end, far in self._peer.items():
            (node, name), (peer, peer_port) = end.split("/"), far.split("/")
            number = int(name[3:]) if name.startswith("swp") else 1
            info = {"port_number": number, "peer": {"node": peer, "port": peer_port}}
            one = Object(name, "infiniband", name, {**info, "rdma": name}, METRICS)
            objects.setdefault(node, []).append(one)
        for name in HOSTS:
            if name not in self._silent:
                objects[name].append(self._wires.report(f"{name}/mlx5_0"))
        if self._has_tables:
            objects["leaf1"].append(self._tables())
        return {node: hello(*own) for node, own in objects.items()}

    def _tables(self) -> Object:
        own = {name: range(4 * leaf, 4 * leaf + 4) for leaf, name in enumerate(LEAVES)}
        outs = {
            "leaf1": {n: n + 1 if n in own["leaf1"] else 4 + UPLINKS[HOSTS[n]] for n in range(8)},
            "leaf2": {n: n - 3 if n in own["leaf2"] else 8 for n in range(8)},
            **{spine: {n: n // 4 + 1 for n in range(8)} for spine in self.spines},
        }
        tables = [
            pack_table(
                {1 + n * self._lids + k: out for n, out in to.items() for k in range(self._lids)}
            )
            for to in outs.values()
        ]
        info = {"switches": list(outs), "tables": tables}
        return Object("forwarding_tables", "forwarding_tables", None, info, ())

    def transfer(self, gbps: float, src: str, dst: str) -> None:
        """A flow from a host of leaf1 to one of leaf2, by the tables."""
        uplink, place = UPLINKS[dst], HOSTS.index(dst) - 3
        path = (f"{src}/mlx5_0", f"leaf1/swp{4 + uplink}", f"spine{uplink}/swp2")
        self.send(gbps * GBPS, *path, f"leaf2/swp{place}")


def collision(fabric: Infiniband) -> Finding:
    """The finding, where all hosts of leaf1 send at the same rate, and two share an uplink."""
    for src, dst in RING:
        fabric.transfer(195, src, dst)
    (found,) = Watched(fabric).seconds(SECONDS).findings
    assert (found.cause, found.subject) == ("ecmp_collision", "leaf1/swp5")
    return found


def value(finding: Finding, name: str) -> object:
    return next((each.value for each in finding.evidence if each.name == name), None)


def test_the_pairs_that_share_a_full_link_are_named_by_the_tables() -> None:
    found = collision(Infiniband(RING))
    assert found.victims == ("leaf1/swp1", "leaf1/swp2")
    assert "2 ports share it (gpu001 r0 to gpu005 r0, gpu002 r0 to gpu006 r0)" in found.text
    assert "lose up to 50 %" in found.text, "its hosts count nothing"
    assert value(found, "pairs on the link") == "gpu001 r0 to gpu005 r0, gpu002 r0 to gpu006 r0"
    assert value(found, "slowed ports") == 2
    assert "which ports share it" not in found.unseen
    assert value(found, "job 8801 sends from") == "gpu001, gpu002"
    assert value(found, "job 8801 sends to") == "gpu005, gpu006"


@pytest.mark.parametrize(
    "fabric",
    [
        Infiniband(RING, has_tables=False),
        Infiniband(RING, silent=("gpu002",)),
        Infiniband(RING, silent=("gpu006",)),
        Infiniband(RING, lids=2),
        Infiniband([("gpu001", "gpu007"), ("gpu002", "gpu006")]),
    ],
    ids=[
        "no tables",
        "a sender is silent",
        "a receiver is silent",
        "several LIDs",
        "other senders",
    ],
)
def test_where_it_is_not_known_who_is_on_a_link_nobody_is_named(fabric: Infiniband) -> None:
    found = collision(fabric)
    assert found.victims == ()
    assert "at least 2 of 4 ports share it" in found.text
    assert found.unseen.endswith("which ports share it")
    assert " to gpu00" not in found.text


def test_the_tables_alone_say_whom_a_link_into_a_leaf_leads_to() -> None:
    """All hosts of leaf2 receive at the same rate, two of them over spine1."""
    fabric = Infiniband([], silent=HOSTS)
    for dst, spine in UPLINKS.items():
        fabric.send(195 * GBPS, f"spine{spine}/swp2", f"leaf2/swp{HOSTS.index(dst) - 3}")
    (found,) = Watched(fabric).seconds(SECONDS).findings
    assert found.subject == "spine1/swp2"
    assert found.victims == ("leaf2/swp1", "leaf2/swp2")
    assert value(found, "pairs on the link") is None, "who sends to them is not known"


def test_of_hosts_with_idle_connections_over_a_link_nobody_is_named() -> None:
    """All hosts of leaf1 have connections to all of leaf2, and each sends to one."""
    found = collision(Infiniband([(src, dst) for src in HOSTS[:4] for dst in HOSTS[4:]]))
    assert found.victims == ()
    assert "at least 2 of 4 ports share it" in found.text
    assert " to gpu00" not in found.text


def test_a_host_that_sends_a_little_over_another_link_as_well_is_named() -> None:
    fabric = Infiniband([*RING, ("gpu003", "gpu006")])
    for src, dst, gbps in (
        ("gpu001", "gpu005", 150),
        ("gpu002", "gpu006", 150),
        ("gpu003", "gpu006", 90),
        ("gpu003", "gpu007", 50),
        ("gpu004", "gpu008", 240),
    ):
        fabric.transfer(gbps, src, dst)
    (found,) = Watched(fabric).seconds(SECONDS).findings
    assert found.victims == ("leaf1/swp1", "leaf1/swp2", "leaf1/swp3")
