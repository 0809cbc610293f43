"""Hellos one after the other give the fabric that all of them give at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import msgspec
import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from collectors.catalog import CATALOG
from collectors.wire import Object
from fabmon.analysis.analyst import Analyst
from fabmon.analysis.fabric_structure import FabricStructure, build_structure
from fabmon.fabric.fabric_builder import FabricBuilder, PortRows, build
from fabmon.fabric.model import Fabric, Host
from fabmon.fabric.topology.plan import Topology
from fabmon.fabric.topology.plan_files import parse
from fabmon.fabric.wire.messages import Hello
from fabmon.history.history import History
from fabmon.session.config import load
from tests import work
from tests.builders import LeafSpine, ecmp, hello, neighbour, port, tick

NODES = ("leaf1", "spine1", "spine2", "gpu001", "gpu002", "gpu003")
PORTS = ("a", "b", "c")

ports = st.builds(
    lambda names, macs: [
        port(name, mac, pci=f"0000:0{place}:00.0", rdma=f"mlx5_{place}", line_rate_bps=1e11)
        for place, (name, mac) in enumerate(zip(names, macs, strict=False))
    ],
    st.lists(st.sampled_from(PORTS), min_size=1, max_size=3, unique=True),
    st.permutations([f"m{number}" for number in range(8)]),
)
neighbours = st.lists(
    st.builds(
        neighbour, st.sampled_from(PORTS), st.sampled_from([f"m{number}" for number in range(8)])
    ),
    max_size=4,
    unique_by=lambda item: item.id,
)
groups = st.sampled_from(([], [ecmp("a", "b")], [ecmp("b", "c")]))
hellos = st.builds(
    lambda own, near, ways, kernel: hello(*own, *near, *ways, kernel=kernel),
    ports,
    neighbours,
    groups,
    st.sampled_from(("6.1", "6.8")),
)
sequences = st.lists(
    st.dictionaries(st.sampled_from(NODES), hellos, max_size=3), min_size=2, max_size=8
)


def described(fabric: Fabric) -> Fabric:
    return msgspec.structs.replace(fabric, version=0)


@settings(deadline=None, max_examples=80, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(sequence=sequences)
def test_a_fabric_that_grew_is_the_one_built_at_once(sequence: Sequence[dict[str, Hello]]) -> None:
    history = History(LeafSpine(uplinks=2, hosts=3).hosts)
    hosts = LeafSpine(uplinks=2, hosts=3).hosts
    said: dict[str, Hello] = {}
    for seq, now in enumerate(sequence):
        for name, new in now.items():
            # Often only some of it is new: another kernel, or other blocks.
            kept = said.get(name, new)
            said[name] = msgspec.structs.replace(kept, kernel=new.kernel) if seq % 2 else new
        snapshot = history.accept(tick(seq, {}, {name: said[name] for name in now}))
        at_once = build(hosts, said, history.rows, 0)
        assert described(snapshot.fabric) == at_once


def assert_same(one: FabricStructure, other: FabricStructure) -> None:
    # The numbers of names in `ports` may differ.
    names = [each.name for each in fields(one) if each.name not in ("fabric", "ports")]
    for name in (each for each in names if not each.startswith("_")):
        assert_equal(getattr(one, name), getattr(other, name))


def assert_equal(one: object, other: object) -> None:
    if isinstance(one, dict) and isinstance(other, dict):
        one, other = list(one.items()), list(other.items())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        assert len(one) == len(other)
        for mine, its in zip(one, other, strict=True):
            assert_equal(mine, its)
    else:
        np.testing.assert_array_equal(one, other)


def lldp(dev: str, node: str, far: str, role: str | None) -> Object:
    info = {"dev": dev, "peer_node": node, "peer_port": far, "peer_role": role}
    return Object(f"lldp/{dev}/{node}/{far}", "neighbour", None, info, ())


cabled_ports = st.builds(
    lambda names, macs, drivers: [
        port(name, mac, pci=f"0000:0{place}:00.0", driver=driver, **rdma)
        for place, (name, mac, (driver, rdma)) in enumerate(zip(names, macs, drivers, strict=False))
    ],
    st.lists(st.sampled_from(("a", "b", "C", "eth0")), min_size=1, max_size=4, unique=True),
    st.permutations([f"m{number}" for number in range(6)]),
    st.lists(
        st.sampled_from((("mlx5_core", {"rdma": "mlx5_0"}), ("bnxt_en", {}), ("efa", {}))),
        min_size=4,
        max_size=4,
    ),
)
reports = st.lists(
    st.builds(
        lldp,
        st.sampled_from(PORTS),
        st.sampled_from((*NODES, "GPU001.example", "spine9")),
        st.sampled_from(("a", "b", "c", "m1", "")),
        st.sampled_from((None, "host", "switch")),
    ),
    max_size=4,
    unique_by=lambda item: item.id,
)
addresses = st.lists(
    st.builds(
        lambda dev, number: Object(
            f"{dev}/{number}",
            "addresses",
            None,
            {"dev": dev, "addresses": [f"10.0.0.{number}/31"]},
            (),
        ),
        st.sampled_from(PORTS),
        st.integers(0, 5),
    ),
    max_size=2,
    unique_by=lambda item: item.id,
)
cabled_hellos = st.builds(
    lambda own, near, far, at, ways, hostname: hello(
        *own, *near, *far, *at, *ways, hostname=hostname
    ),
    cabled_ports,
    neighbours,
    reports,
    addresses,
    groups,
    st.sampled_from(("", "", "", "gpu001")),
)
PLAN = parse("leaf1,a,spine1,a\nleaf1,b,spine2,a\ngpu003,a,leaf1,c\n", "plan.csv")


@settings(deadline=None, max_examples=150, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    start=st.fixed_dictionaries(dict.fromkeys(NODES, cabled_hellos)),
    changes=st.lists(st.tuples(st.sampled_from(NODES), cabled_hellos), max_size=8),
    plan=st.sampled_from((None, PLAN)),
)
def test_one_hello_after_the_other_gives_the_fabric_of_all_at_once(
    start: dict[str, Hello], changes: list[tuple[str, Hello]], plan: Topology | None
) -> None:
    hosts, rows = LeafSpine(uplinks=2, hosts=3).hosts, PortRows()
    builder = FabricBuilder(rows, topology=plan)
    said = dict(start)
    structure = build_structure(builder.build(hosts, said, 0))
    for name, new in changes:
        said[name] = new
        fabric = builder.build(hosts, said, 0)
        assert fabric == build(hosts, said, rows, 0, topology=plan)
        at_once = build_structure(fabric, cables=structure.peer)
        structure = build_structure(fabric, structure, structure.peer)
        assert_same(structure, at_once)


def test_a_hello_with_another_kernel_alone_leaves_ports_and_structure_as_they_are() -> None:
    fabric = LeafSpine()
    history = History(fabric.hosts)
    analyst = Analyst(load(Path("/dev/null")).thresholds)
    before = history.accept(fabric.step())
    analyst.accept(before)
    newer = msgspec.structs.replace(fabric.hellos()["gpu001"], kernel="6.8")
    after = history.accept(msgspec.structs.replace(fabric.step(), hellos=(("gpu001", newer),)))
    analyst.accept(after)
    assert after.fabric.node("gpu001").about["kernel"] == "6.8"
    assert after.fabric.version > before.fabric.version
    assert after.fabric.ports is before.fabric.ports
    assert np.array_equal(after.column("tx_bps"), np.zeros(len(after.fabric.ports)))
    assert (build_structure(after.fabric).peer == build_structure(before.fabric).peer).all()


def test_a_hello_with_another_neighbour_changes_the_cabling() -> None:
    fabric = LeafSpine()
    history = History(fabric.hosts)
    before = history.accept(fabric.step())
    eth0 = next(each for each in before.fabric.ports if each.id == "gpu001/eth0")
    assert eth0.cable is not None
    said = hello(port("eth0", "gpu001-eth0"), neighbour("eth0", "gpu002-eth0"))
    after = history.accept(msgspec.structs.replace(fabric.step(), hellos=(("gpu001", said),)))
    assert after.fabric.ports is not before.fabric.ports
    assert after.fabric.ports[eth0.row].cable is None


def test_the_largest_hello_is_not_looked_at_value_by_value() -> None:
    """2,048 ports of 31 metrics: what a metric is, is asked once for all ports."""
    metrics = list(CATALOG)[:31]
    largest = hello(*[port(f"p{n}", f"m{n}", metrics=metrics) for n in range(2048)])
    history = History([Host(name="a")])
    with work.counted() as done:
        history.accept(tick(0, {}, {"a": largest}))
    assert done.lines < 1_100_000


def test_the_largest_hello_whose_cables_are_as_before_costs_no_new_cabling() -> None:
    """2,048 ports with LLDP, of which only the firmware is another one."""
    fabric = LeafSpine()
    history = History([*fabric.hosts, Host(name="a")])

    def lines(firmware: str) -> int:
        ports = [port(f"p{n}", f"m{n}", metrics=(), fw=firmware) for n in range(2048)]
        far = ({"dev": f"p{n}", "peer_node": "leaf1", "peer_port": f"e{n}"} for n in range(2048))
        peers = [Object(each["dev"], "neighbour", None, each, ()) for each in far]
        made = fabric.step()
        hellos = (*made.hellos, ("a", hello(*ports, *peers)))
        with work.counted() as done:
            history.accept(msgspec.structs.replace(made, hellos=hellos))
        return done.lines

    lines("0")
    assert lines("1") < 1_000_000


def test_a_node_without_a_name_is_no_node() -> None:
    """A manager reports one, in every hello with other facts: planned cables had that name."""
    history = History([Host(name="ufm", via="ufm")])
    for second in range(3):
        ports = [port(f"p{n}", f"m{n}", firmware=second) for n in range(2)]
        said = hello(ports[0]._replace(node=""), ports[1]._replace(node="leaf1"))
        snapshot = history.accept(tick(second, {}, {"ufm": said}))
    assert "" not in [node.name for node in snapshot.fabric.nodes]
    assert "leaf1" in [node.name for node in snapshot.fabric.nodes]
