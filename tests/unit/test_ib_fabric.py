"""Switches of InfiniBand on the console: one node is asked, and reports them and their cables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.wire import Object
from fabmon.fabric.fabric_builder import PortRows, build
from fabmon.fabric.model import Fabric, Host
from fabmon.fabric.node_facts import NodeFacts
from fabmon.fabric.topology.address_cables import PortName, cables_by_mac
from fabmon.fabric.topology.claims import located, merge, reported_claims
from fabmon.fabric.topology.port_lookup import PortLookup
from fabmon.fabric.wire.messages import ObjectInfo
from tests import requirements as needed
from tests.builders import hello
from tests.fixtures.ibsim import LIBRARY
from tests.fixtures.ibsim import Fabric as Simulated

LEAF, SPINE, GPU1, GPU2 = "a0", "b0", "c1", "c2"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator's library leaves a directory for every process where it runs."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)


def switch_port(node: str, port: str, guid: str, peer: tuple[str, str, str], role: str) -> Object:
    there = dict(zip(("node", "port", "guid"), peer, strict=True))
    info = {"node_role": role, "guid": guid, "peer": there}
    return Object(f"{node}/{port}", "infiniband", port, info, ("ib_state",), node)


def own(guid: str) -> Object:
    info = {"guid": f"0000:0000:0000:00{guid}", "rdma": "mlx5_0"}
    return Object("mlx5_0", "infiniband", "mlx5_0", info, ("ib_state",))


def fabric_reported_by(sender: Host, *others: Host) -> Fabric:
    switches = (
        switch_port("leaf1", "p1", LEAF, ("gpu1", "mlx5_0", GPU1), "switch"),
        switch_port("leaf1", "p2", LEAF, ("gpu2", "HCA-1", GPU2), "switch"),
        switch_port("leaf1", "p31", LEAF, ("spine1", "p1", SPINE), "switch"),
        switch_port("spine1", "p1", SPINE, ("leaf1", "p31", LEAF), "switch"),
    )
    hellos = {sender.name: hello(own(GPU1), *switches)}
    hellos |= {host.name: hello(own(GPU2)) for host in others}
    return build([sender, *others], hellos, PortRows(), 1)


def peers(fabric: Fabric) -> dict[str, str]:
    return {p.id: fabric.ports[p.peer].id for p in fabric.ports if p.peer is not None}


ASKED = Host(name="gpu1", sources=("+ib_fabric",))


def test_cables_of_switches_lead_to_the_ports_of_watched_hosts() -> None:
    """By their GUIDs: a host may be called otherwise than its HCA says."""
    found = peers(fabric_reported_by(ASKED, Host(name="node-b.example.com")))
    assert found["leaf1/p1"] == "gpu1/mlx5_0"
    assert found["node-b.example.com/mlx5_0"] == "leaf1/p2"
    assert found["spine1/p1"] == "leaf1/p31"
    assert all(found[other] == one for one, other in found.items())


def test_a_leaf_has_uplinks_where_no_routes_tell() -> None:
    fabric = fabric_reported_by(ASKED)
    roles = {port.id: port.role for port in fabric.ports}
    assert roles["leaf1/p31"] == "uplink"
    assert roles["leaf1/p1"] == roles["spine1/p1"] == "downlink"
    assert {node.name: node.group for node in fabric.nodes} == {
        **{"gpu1": "leaf1", "leaf1": "leaf1", "spine1": "spines"},
    }


def test_a_node_that_was_not_asked_tells_of_no_cables_of_others() -> None:
    fabric = fabric_reported_by(Host(name="gpu1"))
    assert [port.id for port in fabric.ports] == ["gpu1/mlx5_0"]


def claim(node: str, port: str) -> dict[str, Any]:
    return {"peer": {"node": node, "port": port}}


Ports = dict[str, dict[str, dict[str, Any]]]


def wired(ports: Ports, neighbours: dict[str, list[Any]]) -> dict[PortName, PortName]:
    facts = {node: NodeFacts() for node in ports}
    for node, fact in facts.items():
        for name, info in ports[node].items():
            fact.add(ObjectInfo(name, "ethernet", name, info, ()), "sonic")
        fact.neighbours += neighbours.get(node, [])
    seen = cables_by_mac({node: (fact.ports, fact.neighbours) for node, fact in facts.items()})
    places = PortLookup(facts)
    return merge(located(reported_claims(facts), places), seen, places, set(), {}).peers


def test_lldp_names_a_port_by_its_mac_or_interface_and_a_host_by_its_full_name() -> None:
    ports: Ports = {
        "leaf": {
            "Ethernet0": claim("gpu1.example.com", "02:00:00:00:00:0A"),
            "Ethernet4": {"peer": {"node": "gpu2", "port": "?", "port_name": "ens1"}},
            "Ethernet8": claim("elsewhere", "eth0"),
            "Ethernet12": {"peer": "nonsense"},
        },
        "gpu1": {"mlx5_0": {"netdev": "ens1", "mac": "02:00:00:00:00:0a"}},
        "gpu2": {"mlx5_0": {"netdev": "ens1"}},
    }
    found = wired(ports, {})
    assert found == {
        ("leaf", "Ethernet0"): ("gpu1", "mlx5_0"),
        ("gpu1", "mlx5_0"): ("leaf", "Ethernet0"),
        ("leaf", "Ethernet4"): ("gpu2", "mlx5_0"),
        ("gpu2", "mlx5_0"): ("leaf", "Ethernet4"),
    }


def test_what_an_end_reports_comes_before_its_neighbours_mac() -> None:
    ports: Ports = {
        "leaf": {"p1": {"mac": "s", **claim("a", "eth1")}},
        "a": {"eth0": {"mac": "a0"}, "eth1": {"mac": "a1"}},
    }
    seen = {"leaf": [{"dev": "p1", "mac": "a0"}], "a": [{"dev": "eth0", "mac": "s"}]}
    assert wired(ports, seen) == {
        ("leaf", "p1"): ("a", "eth1"),
        ("a", "eth1"): ("leaf", "p1"),
    }


def test_two_that_claim_one_port_are_both_not_believed() -> None:
    ports: Ports = {
        "a": {"p": claim("c", "p")},
        "b": {"p": claim("c", "p")},
        "c": {"p": {}},
    }
    assert wired(ports, {}) == {}


@pytest.fixture
def simulated(tmp_path: Path) -> Iterator[Simulated]:
    needed.need_command("ibsim", "ibsim-utils")
    needed.need_command("opensm", "opensm")
    needed.need_path("/usr/sbin/iblinkinfo", "apt-get install infiniband-diags")
    needed.need_path(LIBRARY, "apt-get install libumad2sim0")
    started = Simulated(str(tmp_path / "fabric"))
    started.start()
    yield started
    started.stop()


def test_end_to_end(simulated: Simulated, tmp_path: Path) -> None:
    """Real tools, the real probe, the real program: switches, cables and what crosses them."""
    hosts = tmp_path / "hosts"
    hosts.write_text("login via=local sources=+ib_fabric\n")
    program = [str(Path(sys.executable).with_name("fabmon")), "--hosts", str(hosts)]
    process = subprocess.Popen(
        [*program, "--format", "jsonl", "--duration", "60"],
        env={**os.environ, "PATH": f"{simulated.bin}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    links: dict[str, Any] = {}
    sent = 0
    for line in process.stdout:
        record = json.loads(line)
        if record["type"] != "tick":
            continue
        links = {f"{each['node']}/{each['port']}": each for each in record["links"]}
        if "leaf1/p5" in links:
            sent += 250_000_000
            simulated.count('"leaf1"[5]', PortXmitData=sent)
            if (links["leaf1/p5"]["tx_bps"] or 0) > 10**9:
                break
    process.terminate()
    process.communicate(timeout=240)
    switches = {name: each for name, each in links.items() if not name.startswith(("login", "gpu"))}
    assert len(switches) == 12
    assert {each["state"] for each in switches.values()} == {"up"}
    assert links["leaf1/p5"]["peer"] == "spine1/p1"
    assert links["leaf1/p5"]["role"] == "uplink"
    assert links["leaf2/p2"]["peer"] == "gpu4/mlx5_0"
    assert links["leaf1/p5"]["speed_bps"] == 10e9
    assert links["leaf1/p5"]["tx_bps"] > 10**9


def test_forwarding_tables_end_to_end(simulated: Simulated, tmp_path: Path) -> None:
    """Real tools and the real program: every pair of hosts is on the links that the tables say."""
    hosts = tmp_path / "hosts"
    hosts.write_text("login via=local sources=+ib_fabric\n")
    program = [str(Path(sys.executable).with_name("fabmon")), "flows", "--hosts", str(hosts)]
    done = subprocess.run(
        [*program, "--format", "json", "--duration", "60"],
        env={**os.environ, "PATH": f"{simulated.bin}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    links = json.loads(done.stdout)["links"]
    over = {each["port"]: each["host_pairs"] for each in links}
    assert {(each["port"], each["peer"]) for each in links} <= {
        *((f"leaf{n}/p5", f"spine1/p{n}") for n in (1, 2)),
        *((f"leaf{n}/p6", f"spine2/p{n}") for n in (1, 2)),
        *((f"spine1/p{n}", f"leaf{n}/p5") for n in (1, 2)),
        *((f"spine2/p{n}", f"leaf{n}/p6") for n in (1, 2)),
    }
    up = [over.get(f"leaf{n}/{port}", 0) for n in (1, 2) for port in ("p5", "p6")]
    down = [over.get(f"spine{n}/{port}", 0) for n in (1, 2) for port in ("p1", "p2")]
    assert sum(up) == sum(down) == 8, "two hosts below each leaf, in both directions"
