from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from collectors.readers.netlink import Address, Hop, Neighbour, Route, parse_message
from collectors.readers.route_summary import RouteSummary
from collectors.source import Failed, NoData
from tests.fixtures import hosts
from tests.fixtures.in_namespace import can_have_one, namespace
from tests.fixtures.reading import ask, source
from tests.requirements import need, need_command, need_root


@pytest.fixture(scope="module")
def netns() -> None:
    need_root()
    need_command("ip", "iproute2")
    need_command("unshare", "util-linux")
    need("network namespaces", can_have_one(), "run in a privileged container")


@pytest.fixture(scope="module")
def scene(netns: None) -> Any:
    return namespace("neighbourhood")


def test_a_tree_carries_the_facts_in_a_file(tmp_path: Path) -> None:
    tree = hosts.roce_host(tmp_path, hcas=2)
    answer = ask("routes", tmp_path)
    assert [(item.id, item.kind, item.port) for item in answer.objects] == [
        ("ecmp/1", "ecmp", None),
        ("neighbour/ens1np0/10.0.0.1", "neighbour", None),
        ("neighbour/ens2np0/10.1.0.1", "neighbour", None),
        ("addresses/ens1np0", "addresses", None),
        ("addresses/ens2np0", "addresses", None),
    ]
    assert [way["dev"] for way in answer.info("ecmp/1")["members"]] == ["ens1np0", "ens2np0"]
    routes = source("routes", tmp_path)
    before = routes.signature()
    assert routes.signature() == before
    tree.routes({"ecmp": [], "neighbours": [], "addresses": []})
    assert routes.signature() != before


def test_a_group_says_how_its_links_are_selected(tmp_path: Path) -> None:
    """By the kernel's hash; on Cumulus by the hardware, adaptively where switchd says so."""

    def selection() -> tuple[Any, Any]:
        info = ask("routes", tmp_path).info("ecmp/1")
        return info.get("hash_policy"), info.get("adaptive_routing")

    tree = hosts.roce_host(tmp_path, hcas=2)
    assert selection() == (None, None)
    tree.write("proc/sys/net/ipv4/fib_multipath_hash_policy", "1")
    assert selection() == (1, None)
    file = "etc/cumulus/switchd.d/adaptive_routing.conf"
    tree.write(file, "## Global setting\nadaptive_routing.enable = FALSE\n")
    assert selection() == (None, None)
    tree.write(file, "## Global setting\nadaptive_routing.enable = TRUE\n")
    assert selection() == (None, f"/{file}")


def test_a_tree_without_the_file_has_no_data(tmp_path: Path) -> None:
    hosts.container_host(tmp_path)
    with pytest.raises(NoData):
        source("routes", tmp_path).discover()


@pytest.mark.parametrize("text", ["{", "{}", "[]"])
def test_a_broken_file_is_said_to_be(tmp_path: Path, text: str) -> None:
    (tmp_path / "routes.json").write_text(text)
    with pytest.raises(Failed, match=r"routes\.json"):
        source("routes", tmp_path).discover()


def test_a_multipath_route_from_bytes() -> None:
    payload = bytes.fromhex(
        "02100000fe0300010000000008000f00fe00000008000100 0a07000024000900"
        "10000001030000000800 05000a00000210001000050000000800 05000a000102".replace(" ", "")
    )
    assert parse_message(24, payload) == Route(
        2, "10.7.0.0/16", 0, (Hop(3, "10.0.0.2", 2, True), Hop(5, "10.0.1.2", 1, False))
    )


def test_routes_that_carry_no_traffic_are_left_out() -> None:
    local = bytes.fromhex("022000 00ff0200020000000008000f00ff000000".replace(" ", ""))
    assert parse_message(24, local) is None
    assert parse_message(12345, local) is None


def test_bytes_that_lie_about_their_length_end() -> None:
    route = bytes.fromhex("02100000fe03000100000000")
    for tail in ("0000", "00000100", "ff000100", "0800090000000000", "0c00090000000000ffffffff"):
        fact = parse_message(24, route + bytes.fromhex(tail))
        assert isinstance(fact, Route)
        assert fact.hops == ()


KNOWN = RouteSummary(
    ecmp=[],
    neighbours=[{"dev": "a", "ip": "10.0.0.2", "mac": "02:00:00:00:00:02"}],
    addresses=[{"dev": "a", "addresses": ["10.0.0.1/24"]}],
    names={3: "a"},
)


@pytest.mark.parametrize(
    ("there", "fact", "differs"),
    [
        (True, Neighbour(3, "10.0.0.2", "02:00:00:00:00:02", 4), False),
        (True, Neighbour(3, "10.0.0.2", "02:00:00:00:00:99", 2), True),
        (True, Neighbour(3, "10.0.0.3", "02:00:00:00:00:03", 2), True),
        (True, Neighbour(3, "10.0.0.2", None, 0x20), False),
        (False, Neighbour(3, "10.0.0.2", "02:00:00:00:00:02", 2), False),
        (True, Neighbour(4, "10.0.0.3", "02:00:00:00:00:03", 2), False),
        (True, Address(3, "10.0.0.1/24"), False),
        (False, Address(3, "10.0.0.1/24"), True),
        (True, Address(3, "10.0.0.9/24"), True),
        (False, Address(3, "10.0.0.9/24"), False),
    ],
)
def test_which_facts_differ(there: bool, fact: Any, differs: bool) -> None:
    assert KNOWN.differs(there, fact) is differs


def test_a_crowded_segment_is_no_change() -> None:
    crowd = [{"dev": "a", "ip": f"10.0.0.{n}", "mac": f"02:00:00:00:01:{n:02x}"} for n in range(64)]
    crowded = KNOWN._replace(neighbours=crowd)
    assert not crowded.differs(True, Neighbour(3, "10.0.0.200", "02:00:00:00:00:03", 2))


@pytest.mark.usefixtures("netns")
class TestInANamespace:
    def test_groups_are_merged_and_kept_apart_by_weight_and_family(self, scene: Any) -> None:
        def ways(*vias: str, weights: tuple[int, int] = (1, 1)) -> list[dict[str, Any]]:
            return [
                {"dev": ("east0", "west0")[row], "via": via, "weight": weights[row]}
                for row, via in enumerate(vias)
            ]

        v4 = ("10.0.0.2", "10.0.1.2")
        groups = {
            tuple(group["destinations"]): {k: v for k, v in group.items() if k != "destinations"}
            for group in scene["ecmp"]
        }
        assert groups == {
            ("10.6.0.0/16",): {
                "family": "inet",
                "members": ways("fe80::1", "10.0.1.2"),
                "destinations_count": 1,
            },
            ("10.7.0.0/16", "10.8.0.0/16"): {
                "family": "inet",
                "members": ways(*v4, weights=(2, 1)),
                "destinations_count": 2,
            },
            ("10.9.0.0/16",): {
                "family": "inet",
                "members": ways(*v4, weights=(1, 3)),
                "destinations_count": 1,
            },
            ("fd09::/64",): {
                "family": "inet6",
                "members": ways("fd00:1::2", "fd00:2::2"),
                "destinations_count": 1,
            },
        }

    def test_ip_route_says_the_same(self, scene: Any) -> None:
        theirs = {
            route["dst"]: sorted(
                (
                    way["dev"],
                    way.get("gateway") or way["via"]["host"],
                    way["weight"],
                )
                for way in route["nexthops"]
            )
            for route in scene["ip_routes"]
            if len(route.get("nexthops", [])) > 1
        }
        ours = {
            destination: [(way["dev"], way["via"], way["weight"]) for way in group["members"]]
            for group in scene["ecmp"]
            for destination in group["destinations"]
        }
        assert ours == theirs
        assert len(ours) == 5

    def test_neighbours_with_a_mac_that_did_not_fail(self, scene: Any) -> None:
        assert scene["neighbours"] == [
            {"dev": "east0", "ip": "10.0.0.2", "mac": "02:00:00:00:00:02"},
            {"dev": "west0", "ip": "10.0.1.2", "mac": "02:00:00:00:00:03"},
        ]
        theirs = {item["dst"]: item["state"] for item in scene["ip_neighbours"]}
        assert theirs["10.0.1.9"] == ["FAILED"]

    def test_a_default_route_is_one_of_the_main_table(self) -> None:
        assert namespace("defaults") == {"policy": [], "main": ["west0"]}

    def test_addresses_above_the_ports_and_of_the_loopback_are_reported(self) -> None:
        found = namespace("above")
        for item in found["seen"].values():
            kept = [text for text in item["addresses"] if not text.startswith("fe80")]
            item["addresses"] = kept
        assert found["seen"]["br7"] == {
            "dev": "br7",
            "addresses": ["10.0.7.1/24"],
            "over": ["swp1"],
        }
        assert found["seen"]["lo"] == {"dev": "lo", "addresses": ["10.255.0.1/32"], "over": []}
        assert found["news"]

    def test_addresses_are_those_that_ip_shows(self, scene: Any) -> None:
        theirs = {
            link["ifname"]: sorted(f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"])
            for link in scene["ip_addresses"]
            if link["ifname"] in ("east0", "west0")
        }
        ours = {item["dev"]: sorted(item["addresses"]) for item in scene["addresses"]}
        # Link-local addresses come while this runs.
        for addresses in (*ours.values(), *theirs.values()):
            addresses[:] = [address for address in addresses if not address.startswith("fe80")]
        assert ours == theirs
        assert ours["east0"] == ["10.0.0.1/24", "fd00:1::1/64"]

    @pytest.mark.skipif(
        sys.version_info < (3, 11), reason="pyroute2 is an oracle of the console's Python only"
    )
    def test_pyroute2_says_the_same(self) -> None:
        pytest.importorskip("pyroute2")
        seen = namespace("facts")
        for kind in ("routes", "neighbours"):
            # The kernel learns multicast neighbours while this runs.
            ours, theirs = (
                sorted((row for row in seen[who][kind] if row[1][:2] != "ff"), key=json.dumps)
                for who in ("ours", "theirs")
            )
            assert ours == theirs
            assert len(ours) >= 3

    def test_only_different_facts_are_a_change(self) -> None:
        seen = namespace("news")
        assert seen["changed"] == {
            "nothing": False,
            "neighbour confirmed": False,
            "neighbour lost": False,
            "neighbour replaced": True,
            "neighbour elsewhere": False,
            "route added": True,
            "group changed": True,
            "address added": True,
            "address renewed": False,
            "interface added": True,
        }
        assert seen["objects"] > 3
        assert seen["read"] == []

    def test_counters_over_ioctls_are_those_of_ethtool(self) -> None:
        need("the command ethtool", shutil.which("ethtool") is not None, "apt-get install ethtool")
        seen = namespace("ethtool")
        lines = dict(
            line.strip().rsplit(": ", 1) for line in seen["text"].splitlines() if ": " in line
        )
        assert list(lines) == seen["names"]
        assert [int(value) for value in lines.values()] == seen["everything"]
        assert len(seen["names"]) > 3
        assert int(lines["peer_ifindex"]) > 0
        assert seen["chosen"] == [seen["everything"][place] for place in seen["some"]]
        assert seen["wrong"] is None
        assert seen["error"] == 19  # ENODEV
