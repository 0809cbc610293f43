"""Cables from the addresses of point-to-point links, where no other source reports a far end."""

from __future__ import annotations

import pytest

from tests.unit.topology.making import Plant, cabled

KNOWN = "link subnet"


def routed(one: str, other: str) -> Plant:
    """An uplink of leaf1 and a port of spine1, with these addresses."""
    hardware = Plant()
    hardware.has_addresses("leaf1/swp50", one)
    hardware.has_addresses("spine1/swp1", other)
    return hardware


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("10.2.1.2/31", "10.2.1.3/31"),
        ("10.2.1.1/30", "10.2.1.2/30"),
        ("fd00::2/127", "fd00::3/127"),
    ],
)
def test_two_ports_in_the_subnet_of_a_link_are_cabled(one: str, other: str) -> None:
    fabric = routed(one, other).fabric()
    assert cabled(fabric) == {
        "leaf1/swp50": f"spine1/swp1 ({KNOWN})",
        "spine1/swp1": f"leaf1/swp50 ({KNOWN})",
    }
    peers = {port.id: fabric.ports[port.peer].id for port in fabric.ports if port.peer is not None}
    assert peers == {"leaf1/swp50": "spine1/swp1", "spine1/swp1": "leaf1/swp50"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("10.2.1.2/31", "10.2.1.4/31"),
        ("10.2.1.2/31", "10.2.1.2/31"),
        ("10.2.1.2/29", "10.2.1.3/29"),
        ("10.2.1.2/31", "10.2.1.3/30"),
        ("169.254.1.2/31", "169.254.1.3/31"),
        ("fe80::2/127", "fe80::3/127"),
        ("10.2.1.2/31", "swp1/31"),
    ],
    ids=("other link", "same address", "LAN", "two masks", "link-local", "link-local 6", "no IP"),
)
def test_other_addresses_give_no_cable(one: str, other: str) -> None:
    assert cabled(routed(one, other).fabric()) == {}


def test_a_subnet_with_a_third_port_gives_no_cable() -> None:
    hardware = routed("10.2.1.1/30", "10.2.1.2/30")
    hardware.has_addresses("spine2/swp1", "10.2.1.2/30")
    assert cabled(hardware.fabric()) == {}


def test_both_ends_on_one_node_are_no_cable() -> None:
    hardware = Plant()
    hardware.has_addresses("leaf1/swp1", "10.2.1.2/31")
    hardware.has_addresses("leaf1/swp2", "10.2.1.3/31")
    assert cabled(hardware.fabric()) == {}


def test_a_port_with_far_ends_in_two_subnets_has_none() -> None:
    hardware = routed("10.2.1.2/31", "10.2.1.3/31")
    hardware.has_addresses("leaf1/swp50", "10.2.1.4/31")
    hardware.has_addresses("spine2/swp1", "10.2.1.5/31")
    assert cabled(hardware.fabric()) == {}


def test_the_second_address_of_a_port_names_its_far_end_too() -> None:
    hardware = routed("10.0.0.1/32", "10.2.1.3/31")
    hardware.has_addresses("leaf1/swp50", "10.2.1.2/31")
    assert cabled(hardware.fabric())["leaf1/swp50"] == f"spine1/swp1 ({KNOWN})"


def test_a_source_that_reports_the_same_far_end_comes_first() -> None:
    hardware = routed("10.2.1.2/31", "10.2.1.3/31")
    hardware.lldp("leaf1/swp50", "spine1/swp1")
    hardware.sees("leaf1/swp50", "spine1/swp1")
    known = f"LLDP, neighbour MAC, {KNOWN}"
    assert cabled(hardware.fabric())["leaf1/swp50"] == f"spine1/swp1 ({known})"


def test_any_other_source_decides_against_addresses_and_nothing_is_miscabled() -> None:
    hardware = routed("10.2.1.2/31", "10.2.1.3/31")
    hardware.sees("leaf1/swp50", "spine2/swp1")
    hardware.has_addresses("leaf1/swp51", "10.2.1.4/31")
    hardware.has_addresses("spine3/swp1", "10.2.1.5/31")
    fabric = hardware.fabric("leaf1,swp51,spine4,swp1\n")
    assert cabled(fabric) == {
        "leaf1/swp50": "spine2/swp1 (neighbour MAC)",
        "spine2/swp1": "leaf1/swp50 (neighbour MAC)",
        "leaf1/swp51": "spine4/swp1 (config)",
    }
    assert fabric.contradictions == ()
