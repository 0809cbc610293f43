from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectors.source import Failed, NoData
from collectors.sources.lldp import neighbours
from tests.fixtures import hosts, parts
from tests.fixtures.in_namespace import can_have_one, namespace
from tests.fixtures.reading import ask, source
from tests.requirements import need, need_command, need_root


def test_a_tree_carries_what_lldpcli_prints(tmp_path: Path) -> None:
    tree = hosts.roce_host(tmp_path, hcas=2)
    answer = ask("lldp", tmp_path)
    assert [(item.id, item.info) for item in answer.objects] == [
        (
            f"lldp/ens{n}np0/{n}",
            {
                "dev": f"ens{n}np0",
                "peer_node": f"leaf{n}",
                "peer_port": "etp3",
                "peer_port_name": "Ethernet8",
            },
        )
        for n in (1, 2)
    ]
    tree.lldp([parts.lldp_neighbour("eno9", "mgmt-sw")])
    with pytest.raises(NoData, match="no LLDP neighbour on any port"):
        ask("lldp", tmp_path)


def test_without_lldpd_there_is_nothing(tmp_path: Path) -> None:
    hosts.container_host(tmp_path)
    with pytest.raises(NoData):
        source("lldp", tmp_path).discover()


@pytest.mark.parametrize("text", ["{", "[]", '{"lldp": [{"interface": [{}]}]}', "lldpd: no"])
def test_something_else_than_json0_is_said_to_be(text: str) -> None:
    with pytest.raises(Failed, match="json0"):
        neighbours(text)


def test_no_neighbour_is_an_empty_list_and_one_without_a_name_is_none() -> None:
    assert neighbours('{"lldp": [{}]}') == []
    firmware = parts.lldp_neighbour("eth0", "x")
    del firmware["chassis"][0]["name"]
    assert neighbours(json.dumps({"lldp": [{"interface": [firmware]}]})) == []


@pytest.fixture(scope="module")
def scene() -> Any:
    need_root()
    need_command("lldpd", "lldpd")
    need("network namespaces", can_have_one(), "run in a privileged container")
    return namespace("lldp")


def test_a_real_lldpd_reports_the_cables(scene: Any) -> None:
    assert scene["without"] == ["absent"]
    assert scene["with"] == [
        [
            f"lldp/swp{n}/{n}",
            "neighbour",
            {
                "dev": f"swp{n}",
                "peer_node": "gpu001",
                "mac": scene["macs"][f"eth{n - 1}"],
                "peer_port": f"eth{n - 1}",
                "peer_role": "host",
            },
        ]
        for n in (1, 2)
    ]


def test_only_another_cable_is_a_change(scene: Any) -> None:
    assert not scene["changes without a change"]
    assert scene["changes with a cable"]
    assert scene["then"][1][2]["peer_port"] == "rail7"
