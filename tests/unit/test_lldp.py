"""Cables by name, and the uplinks that they show."""

from __future__ import annotations

from collectors.wire import Object
from fabmon.fabric.fabric_builder import PortRows, build
from fabmon.fabric.model import Host
from fabmon.fabric.names import mac_of
from tests.builders import hello, port


def test_without_ecmp_groups_ports_to_switches_are_uplinks() -> None:
    hosts = [
        Host(name="leaf1", role="switch"),
        Host(name="spine1", role="switch"),
        Host(name="gpu001"),
    ]

    def neighbour(dev: str, node: str, port: str) -> Object:
        info = {"dev": dev, "peer_node": node, "peer_port": port}
        return Object(dev, "neighbour", None, info, ())

    hellos = {
        "leaf1": hello(
            port("Ethernet1"),
            port("Ethernet2"),
            neighbour("Ethernet1", "gpu001.example.net", "mlx5_0"),
            neighbour("Ethernet2", "spine1", "Ethernet9"),
        ),
        "spine1": hello(port("Ethernet9")),
        "gpu001": hello(port("eth0", rdma="mlx5_0")),
    }
    fabric = build(hosts, hellos, PortRows(), 1)
    assert [p.role for p in fabric.node("leaf1").ports] == ["downlink", "uplink"]
    assert [p.role for p in fabric.node("spine1").ports] == ["downlink"]
    assert fabric.node("gpu001").group == "leaf1"


def test_two_ports_that_claim_the_same_neighbour_have_none() -> None:
    neighbours = [
        Object(dev, "neighbour", None, {"dev": dev, "peer_node": "b", "peer_port": "e1"}, ())
        for dev in ("e1", "e2")
    ]
    hellos = {"a": hello(port("e1"), port("e2"), *neighbours), "b": hello(port("e1"))}
    fabric = build([Host(name="a"), Host(name="b")], hellos, PortRows(), 1)
    assert all(each.peer is None for each in fabric.ports)


def test_mac_addresses_of_every_spelling() -> None:
    for text in ("444c.a8cd.337e", "44:4C:A8:CD:33:7E", "44-4c-a8-cd-33-7e", "444ca8cd337e"):
        assert mac_of(text) == "44:4c:a8:cd:33:7e"
    assert mac_of("Ethernet1") is None
    assert mac_of("444c.a8cd.337") is None
