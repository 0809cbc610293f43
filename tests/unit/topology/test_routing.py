"""The routing mode of a fabric: which fact decides, and what the configuration may say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collectors.wire import Object
from fabmon.analysis.fabric_structure import build_structure
from fabmon.analysis.model.shared_links import shared_links
from fabmon.fabric.fabric_builder import PortRows, build
from fabmon.fabric.model import SWITCH, Fabric, Host
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.routing_mode import (
    ADAPTIVE,
    HASHED,
    STATIC,
    UNKNOWN,
    Routing,
    hot_link_advice,
)
from fabmon.fabric.topology.plan import Topology
from fabmon.session.config import load, load_topology
from fabmon.session.errors import UsageError
from tests.builders import hello

HOSTS = [
    Host(name="leaf1", role=SWITCH, group="pod1"),
    Host(name="leaf2", role=SWITCH, group="pod1"),
    Host(name="gpu1"),
]


def port(name: str, peer: str, peer_port: str, kind: str = "ethernet", **info: Any) -> Object:
    peers = {"node": peer, "port": peer_port}
    return Object(name, kind, name, {"netdev": name, "peer": peers, **info}, ())


def fabric_of(
    leaf: dict[str, Any] | None = None,
    nic: dict[str, Any] | None = None,
    kind: str = "ethernet",
    ecmp: dict[str, Any] | None = None,
    **rules: str,
) -> Fabric:
    """gpu1 behind leaf1, which has two uplinks to spine1; leaf2 has no ports."""
    uplinks = [port(f"swp{n}", "spine1", f"swp{n}", kind, **(leaf or {})) for n in (1, 2)]
    down = port("swp9", "gpu1", "eth0", kind)
    members = [{"dev": "swp1"}, {"dev": "swp2"}]
    groups = [] if ecmp is None else [Object("e", "ecmp", None, {"members": members, **ecmp}, ())]
    hellos = {
        "leaf1": hello(*uplinks, down, *groups),
        "leaf2": hello(),
        "gpu1": hello(port("eth0", "leaf1", "swp9", kind, **(nic or {}))),
    }
    topology = Topology(tiers={"leaf1": 1, "spine1": 2}, routing=dict(rules))
    return build(HOSTS, hellos, PortRows(), 1, topology=topology)


@pytest.mark.parametrize(
    ("given", "mode", "reason"),
    [
        ({}, UNKNOWN, ""),
        ({"ecmp": {}}, HASHED, "equal-cost routes"),
        (
            {"ecmp": {"hash_policy": 1}},
            HASHED,
            "equal-cost routes, fib_multipath_hash_policy 1: 5-tuple",
        ),
        (
            {"ecmp": {"adaptive_routing": "switchd"}},
            ADAPTIVE,
            "adaptive routing is on (switchd)",
        ),
        (
            {"leaf": {"adaptive_routing": "SONiC"}, "ecmp": {}},
            ADAPTIVE,
            "adaptive routing is on (SONiC)",
        ),
        (
            {"kind": "infiniband", "ecmp": {}},
            STATIC,
            "InfiniBand forwards by tables, and no adaptive routing is reported",
        ),
        ({"nic": {"driver": "efa"}}, ADAPTIVE, "NICs spray packets: EFA (SRD)"),
        ({"nic": {"driver": "cxi_ss1"}, "ecmp": {}}, ADAPTIVE, "NICs spray packets: Slingshot"),
        ({"nic": {"driver": "mlx5_core"}}, UNKNOWN, ""),
        ({"ecmp": {}, "leaf*": ADAPTIVE}, ADAPTIVE, "config: leaf* = adaptive"),
        ({"kind": "infiniband", "pod1": ADAPTIVE}, ADAPTIVE, "config: pod1 = adaptive"),
        ({"*": ADAPTIVE, "leaf[1-2]": HASHED}, HASHED, "config: leaf[1-2] = hashed"),
        ({"leaf2": ADAPTIVE}, UNKNOWN, ""),
    ],
)
def test_the_first_fact_that_applies_decides(given: dict[str, Any], mode: str, reason: str) -> None:
    fabric = fabric_of(**given)
    (group,) = fabric.groups
    assert (group.routing.mode, group.routing.reason) == (mode, reason)
    (links,) = [each for each in shared_links(build_structure(fabric)) if not each.is_inward]
    assert links.routing == group.routing
    assert fabric.routing_of(group.rows[0]) == group.routing


def test_a_collision_is_possible_on_hashed_and_on_unknown_fabrics_only() -> None:
    def may_hash(**given: Any) -> bool:
        return fabric_of(**given).groups[0].routing.may_hash

    assert may_hash()
    assert may_hash(ecmp={})
    assert not may_hash(kind="infiniband")
    assert not may_hash(nic={"driver": "efa"})


def test_the_advice_suits_the_mode() -> None:
    def words(mode: str, hash_policy: int | None = None) -> str:
        return hot_link_advice(Routing(mode, hash_policy=hash_policy))

    more_flows = words(HASHED).removeprefix("Give ")
    assert words(UNKNOWN) == f"If the switches hash, which is not known: give {more_flows}"
    assert words("of a newer version") == words(UNKNOWN)
    assert "NCCL_IB_QPS_PER_CONNECTION=4" in words(HASHED, 1)
    assert "fib_multipath_hash_policy=0" in words(HASHED, 0)
    for mode in (STATIC, ADAPTIVE):
        assert "E-ECMP" not in words(mode)
        assert "hash" not in words(mode)
    assert "routing engine" in words(STATIC)
    assert "traffic class" in words(ADAPTIVE)


def test_a_host_has_the_mode_of_its_leaf() -> None:
    fabric = fabric_of(ecmp={"adaptive_routing": "switchd"})
    assert fabric.routing["gpu1"].mode == ADAPTIVE
    assert "leaf2" not in fabric.routing


def test_a_switch_with_other_nics_beside_spraying_ones_is_not_adaptive() -> None:
    hellos = {
        "leaf1": hello(port("swp1", "spine1", "swp1"), port("swp2", "spine1", "swp2")),
        "gpu1": hello(
            port("eth0", "leaf1", "swp9", driver="efa"),
            port("eth1", "leaf1", "swp8", driver="mlx5_core"),
        ),
    }
    fabric = build(HOSTS, hellos, PortRows(), 1)
    assert "leaf1" not in fabric.routing


def test_the_configuration_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "fabmon.toml"

    def loaded(text: str) -> Topology:
        file.write_text(f"[routing]\n{text}\n", encoding="utf-8")
        return load_topology(load(file), file)

    assert loaded('"leaf[1-8]" = "hashed"').routing == {"leaf[1-8]": "hashed"}
    with pytest.raises(UsageError, match="Invalid enum value 'hash'"):
        loaded('leaf = "hash"')
    with pytest.raises(UsageError, match=r"'leaf\[1': an unclosed|'leaf\[1'"):
        loaded('"leaf[1" = "hashed"')
    with pytest.raises(UsageError, match=r"ranges and wildcards in one pattern: write leaf\[1-8\]"):
        loaded('"leaf[1-8]*" = "hashed"')


def test_redaction_renames_the_nodes_of_the_rules() -> None:
    redactor = Redactor(HOSTS)
    rules = {"pod1": "hashed", "*": "adaptive", "leaf*": "static", "leaf2": "hashed"}
    found = redactor.topology(Topology(routing=rules)).routing
    assert found == {
        "*": "adaptive",
        redactor.node("leaf1"): "static",
        redactor.node("leaf2"): "hashed",
    }
    assert "leaf" not in str(found)
