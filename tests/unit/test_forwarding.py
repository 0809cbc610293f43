"""Paths by forwarding tables: against ibtracert on a simulated fabric, and the flows on a link."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors import wire
from collectors.hostfs import HostFS
from collectors.readers.ib_forwarding import pack_table
from collectors.readers.ib_topology import parse_links
from collectors.sources.ib_fabric import IbFabric
from collectors.sources.ib_sweep import Sweep
from collectors.wire import Object
from fabmon.fabric.fabric_builder import PortRows, build
from fabmon.fabric.flows.flow_table import Connections
from fabmon.fabric.flows.queue_pairs import QueuePairs, queue_pairs_of
from fabmon.fabric.forwarding_tables import ForwardingTables, joined
from fabmon.fabric.model import Fabric, Host
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.routing_mode import ADAPTIVE, STATIC
from fabmon.fabric.topology.plan import Topology
from fabmon.fabric.wire.hello_limits import HelloLimits
from fabmon.fabric.wire.messages import Hello, WireError, decode
from tests import requirements as needed
from tests.builders import hello
from tests.connections import Wires
from tests.fixtures.ibsim import LIBRARY, leaf_spine
from tests.fixtures.ibsim import Fabric as Simulated

SM_NODE = Host(name="login", sources=("+ib_fabric",))

_HOP = re.compile(r"\[(\d+)\] -> .*\{0x([0-9a-f]+)\}\[(\d+)\]")


@pytest.fixture
def simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Simulated]:
    """Three leaves with three hosts each, two spines, two cables between each two switches."""
    needed.need_command("ibsim", "ibsim-utils")
    needed.need_command("opensm", "opensm")
    needed.need_path("/usr/sbin/dump_fts", "apt-get install infiniband-diags")
    needed.need_path(LIBRARY, "apt-get install libumad2sim0")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    started = Simulated(str(tmp_path / "fabric"), leaf_spine(3, 2, 3))
    started.start(*request.param)
    yield started
    started.stop()


class _Tools:
    """The output of the tools, once."""

    def __init__(self, simulated: Simulated) -> None:
        self.links_text = simulated.output("iblinkinfo", "--line")
        self.tables_text = simulated.output("dump_fts", "--no_dests")

    def links(self) -> str:
        return self.links_text

    def forwarding_tables(self) -> str:
        return self.tables_text

    def counters(self, *_: object, **__: object) -> object:
        return lambda: {}

    def stop(self) -> None:
        return


def hello_of(tools: _Tools) -> Hello:
    """The hello of a node that reads the fabric with these tools."""
    source = IbFabric(HostFS("/nowhere"))
    sweep = Sweep(tools, set())  # type: ignore[arg-type]
    source._sweep = sweep
    layout = [wire.BlockLayout("ib_fabric", 1, source.discover())]
    message = decode(wire.hello(layout, {"interval_s": 1.0}))
    assert isinstance(message, Hello)
    return message


@pytest.mark.parametrize(
    ("simulated", "lids"), [((), 1), (("--lmc", "1"), 2)], indirect=["simulated"]
)
def test_paths_are_those_of_ibtracert(simulated: Simulated, lids: int) -> None:
    """For all pairs of NICs and all LIDs; and so are the pairs on every link."""
    tools = _Tools(simulated)
    fabric = build([SM_NODE], {"login": hello_of(tools)}, PortRows(), 1)
    forwarding = Connections(fabric, {}).forwarding
    assert forwarding is not None
    lines = parse_links(tools.links_text)
    lid_of = {f"{line.end.guid:016x}": line.end.lid for line in lines}
    nics = {str(p.info["guid"]): p for p in fabric.ports if p.node.startswith("gpu")}
    assert len(nics) == 9
    by_port = {(str(p.info["guid"]), p.info["port_number"]): p.row for p in fabric.ports if p.node}
    over: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for src_guid, src in nics.items():
        for dst_guid, dst in nics.items():
            if src is dst:
                continue
            traced = set()
            for lid in range(lid_of[dst_guid], lid_of[dst_guid] + lids):
                text = simulated.output("ibtracert", str(lid_of[src_guid]), str(lid))
                rows, at = [], src_guid
                for out, to, _ in _HOP.findall(text):
                    rows.append(by_port[at, int(out)])
                    at = to
                assert at == dst_guid
                traced.add(tuple(rows))
                for row in rows:
                    over[row].add((src.row, dst.row))
            assert set(forwarding.path(src.row, dst.row)) == traced
    for port in fabric.ports:
        pairs = forwarding.pairs_over(port.row) if port.node else None
        if pairs is not None:
            found = set(zip(pairs.src.tolist(), pairs.dst.tolist(), strict=True))
            assert found == over[port.row], port.id
            assert pairs.is_exact == (lids == 1 or not found)
            assert forwarding.pairs_over(port.row) is pairs, "computed once"


CABLES = (
    ("gpu1/mlx5_0", "leaf1/p1"),
    ("gpu2/mlx5_0", "leaf1/p2"),
    ("gpu3/mlx5_0", "leaf2/p1"),
    ("gpu4/mlx5_0", "leaf2/p2"),
    ("leaf1/p5", "spine1/p1"),
    ("leaf1/p6", "spine2/p1"),
    ("leaf2/p5", "spine1/p2"),
    ("leaf2/p6", "spine2/p2"),
)
TABLES = {
    # Both hosts of the other leaf are reached over spine1: spine2 is idle.
    "leaf1": {1: 1, 2: 2, 3: 5, 4: 5},
    "leaf2": {1: 5, 2: 6, 3: 1, 4: 2},
    "spine1": {1: 1, 2: 1, 3: 2, 4: 2},
    "spine2": {1: 1, 2: 1, 3: 2, 4: 2},
}


def port_of(end: str, far: str) -> Object:
    (node, name), (peer, peer_port) = end.split("/"), far.split("/")
    number = int(name[1:]) if name[0] == "p" else 1
    info = {
        "node_role": "host" if node.startswith("gpu") else "switch",
        "port_number": number,
        "peer": {"node": peer, "port": peer_port},
    }
    return Object(end, "infiniband", name, info, (), node)


def tables_of(tables: dict[str, dict[int, int]] = TABLES, **info: object) -> Object:
    packed = {"switches": list(tables), "tables": [pack_table(each) for each in tables.values()]}
    return Object("forwarding_tables", "forwarding_tables", None, {**packed, **info}, ())


PORTS = [port_of(*ends) for one, other in CABLES for ends in ((one, other), (other, one))]


def fabric_of(report: Object, sender: Host = SM_NODE, topology: Topology | None = None) -> Fabric:
    return build([sender], {"login": hello(*PORTS, report)}, PortRows(), 1, topology=topology)


def row_of(fabric: Fabric, port: str) -> int:
    return next(each.row for each in fabric.ports if each.id == port)


def connections(fabric: Fabric, wires: Wires | None = None) -> Connections:
    reports: dict[str, QueuePairs] = {}
    for name in ("gpu1", "gpu2", "gpu3", "gpu4") if wires is not None else ():
        assert wires is not None
        pairs = queue_pairs_of(hello(wires.report(f"{name}/mlx5_0")))
        assert pairs is not None
        reports[name] = pairs
    return Connections(fabric, reports)


def hosts_on(fabric: Fabric, port: str, way: str = "tx") -> list[str]:
    found = connections(fabric).on_link([row_of(fabric, port)], way)
    assert found is not None
    return [f"{one}-{other}" for one, other in found.pairs.hosts(fabric)]


def test_the_pairs_of_hosts_on_a_link_are_known_without_queue_pairs() -> None:
    fabric = fabric_of(tables_of())
    assert hosts_on(fabric, "leaf1/p5") == ["gpu1-gpu3", "gpu1-gpu4", "gpu2-gpu3", "gpu2-gpu4"]
    assert hosts_on(fabric, "leaf1/p6") == []
    assert hosts_on(fabric, "leaf1/p5", "rx") == ["gpu3-gpu1", "gpu4-gpu1"]
    assert hosts_on(fabric, "gpu3/mlx5_0") == ["gpu3-gpu1", "gpu3-gpu2", "gpu3-gpu4"]
    assert hosts_on(fabric, "gpu3/mlx5_0", "rx") == ["gpu1-gpu3", "gpu2-gpu3", "gpu4-gpu3"]


def test_the_flows_on_a_link_are_those_of_its_pairs() -> None:
    fabric = fabric_of(tables_of())
    wires = Wires().connect("gpu1/mlx5_0", "gpu3/mlx5_0", 70, 80)
    wires.connect("gpu1/mlx5_0", "gpu2/mlx5_0", 71, 90).end("gpu2/mlx5_0", 5, 6)
    known = connections(fabric, wires)
    found = known.on_link([row_of(fabric, "leaf1/p5")])
    assert found is not None
    table = known.flows
    ends = [(fabric.ports[table.src[n]].node, fabric.ports[table.dst[n]].node) for n in found.flows]
    assert ends == [("gpu1", "gpu3")], "to gpu2 it does not leave leaf1"
    assert found.unsure == 1, "the one of gpu2 whose other end is not known"
    assert found.pairs.is_exact


def test_tables_do_not_decide_where_routing_is_adaptive() -> None:
    by_engine = fabric_of(tables_of(engine="ar_updn,updn"))
    assert by_engine.routing["leaf1"].mode == ADAPTIVE
    assert by_engine.routing["leaf1"].reason == "routing_engine ar_updn,updn of the subnet manager"
    configured = fabric_of(tables_of(), topology=Topology(routing={"leaf*": ADAPTIVE}))
    for fabric in (by_engine, configured):
        assert connections(fabric).on_link([row_of(fabric, "leaf1/p5")]) is None
    assert fabric_of(tables_of(engine="ftree")).routing["leaf1"].mode == STATIC


def test_where_a_table_is_missing_nothing_is_concluded() -> None:
    tables = {name: table for name, table in TABLES.items() if name != "spine1"}
    fabric = fabric_of(tables_of(tables, left_out=1))
    forwarding = connections(fabric).forwarding
    assert forwarding is not None
    src, dst = row_of(fabric, "gpu1/mlx5_0"), row_of(fabric, "gpu3/mlx5_0")
    assert forwarding.path(src, dst) == []
    assert len(forwarding.path(dst, row_of(fabric, "gpu2/mlx5_0"))) == 1, "over spine2"
    assert hosts_on(fabric, "leaf1/p5") == []


def test_a_loop_ends() -> None:
    tables = {**TABLES, "spine1": {1: 1, 2: 1, 3: 1, 4: 1}}
    fabric = fabric_of(tables_of(tables))
    forwarding = connections(fabric).forwarding
    assert forwarding is not None
    assert forwarding.path(row_of(fabric, "gpu1/mlx5_0"), row_of(fabric, "gpu3/mlx5_0")) == []
    assert hosts_on(fabric, "leaf1/p5") == []


def test_only_a_node_that_may_report_others_reports_tables() -> None:
    assert fabric_of(tables_of(), Host(name="login")).forwarding is None
    assert fabric_of(tables_of(error="dump_fts: denied")).forwarding is not None


def test_subnets_have_lids_of_their_own() -> None:
    one = ForwardingTables({"a1": bytes([255, 1, 2])})
    other = ForwardingTables({"b1": bytes([255, 3])}, engine="ftree")
    again = ForwardingTables({"a1": bytes([255, 9]), "a2": bytes([255])})
    assert joined([]) is None
    found = joined([one, other, again])
    assert found == ForwardingTables(
        {"a1": bytes([255, 1, 2]), "b1": bytes([255, 255, 255, 255, 3])}, engine="ftree"
    )


@pytest.mark.parametrize(
    ("info", "text"),
    [
        ({"switches": ["a"], "tables": []}, "lists of different lengths"),
        ({"switches": ["a"], "tables": [["%"]]}, "not a forwarding table"),
        ({"switches": ["a"], "tables": [["AAAA"]]}, "not a forwarding table"),
        ({"switches": ["a"], "tables": [pack_table({0xFFFF: 1})]}, "of more than 49152 LIDs"),
        ({"switches": ["a"], "tables": ["AAAA"]}, "Expected `array`"),
    ],
)
def test_a_report_that_is_none_is_refused(info: dict[str, object], text: str) -> None:
    report = Object("forwarding_tables", "forwarding_tables", None, info, ())
    with pytest.raises(WireError, match=text):
        HelloLimits(SM_NODE).admit(hello(report))


def test_redaction_keeps_the_tables_and_no_names() -> None:
    given = hello(*PORTS, tables_of(error="", engine="updn"))
    redactor = Redactor([SM_NODE])
    found = redactor.hello(given)
    info = next(o.info for _, _, o in found.objects() if o.kind == "forwarding_tables")
    assert info["tables"] == [pack_table(each) for each in TABLES.values()]
    assert info["switches"] == [redactor.node(name) for name in TABLES]
    assert info["engine"] == "updn"
    assert not {"leaf1", "spine1"} & set(info["switches"])
