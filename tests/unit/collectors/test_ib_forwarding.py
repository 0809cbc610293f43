"""Forwarding tables from the real dump_fts on a simulated fabric, and what limits them."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from random import Random
from typing import Dict, List

import pytest

from collectors.hostfs import HostFS
from collectors.readers import ib_forwarding
from collectors.readers.ib_forwarding import NO_PORT, pack_table, parse_tables, routing_engine
from collectors.sources.ib_fabric import IbFabric
from collectors.wire import Object
from tests.fixtures.ibsim import Fabric
from tests.fixtures.tree import Tree
from tests.unit.collectors.test_ib_fabric import _elsewhere, all_found, fabric, source, until

__all__ = ["_elsewhere", "fabric", "source"]

DUMP = """\
Unicast lids [0x0-0x4] of switch DR path slid 0; dlid 0; 0,1 guid 0x900a840300c0de10 (leaf 1):
  Lid  Out   Destination
       Port     Info
0x0001 000
0x0003 031
0x0004 255
2 valid lids dumped
Unicast lids [0x0-0x4] of switch Lid 7 guid 0x00000000000000b0 (spine):
0x0003 002
"""


def unpacked(pieces: List[str]) -> List[int]:
    return list(zlib.decompress(base64.b64decode("".join(pieces))))


def tables_of(source: IbFabric) -> Dict[str, List[int]]:
    info = all_found(source)[-1].info
    return {n: unpacked(t) for n, t in zip(info["switches"], info["tables"])}


def test_the_output_of_dump_fts_is_read() -> None:
    found = parse_tables(DUMP)
    assert found == {0x900A840300C0DE10: {1: 0, 3: 31, 4: 255}, 0xB0: {3: 2}}
    assert unpacked(pack_table(found[0xB0])) == [NO_PORT, NO_PORT, NO_PORT, 2]
    assert unpacked(pack_table({})) == []
    random = Random(1)
    large = {lid: random.randrange(64) for lid in range(1, 2000)}
    pieces = pack_table(large)
    assert len(pieces) > 2
    assert max(map(len, pieces)) <= 400, "what a console keeps of a text"
    assert unpacked(pieces)[1:] == list(large.values())
    assert parse_tables("dump_fts: iberror: failed\n0x0001 00\n") == {}


def test_all_switches_report_their_tables(source: IbFabric) -> None:
    tables = tables_of(source)
    assert sorted(tables) == ["leaf1", "leaf2", "spine1", "spine2"]
    assert {len(table) for table in tables.values()} == {9}, "LIDs 0 to 8"
    assert all(table[0] == NO_PORT for table in tables.values())
    assert all(table.count(0) == 1 for table in tables.values()), "its own LID"


def test_tables_are_read_again_after_a_change_of_the_cabling(
    fabric: Fabric, source: IbFabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ib_forwarding, "SETTLE_S", 0.3)
    before = tables_of(source)
    uplinks = {port for port in before["leaf1"] if port in (5, 6)}
    assert uplinks == {5, 6}
    fabric.unlink('"leaf1"[6]')
    fabric.manage()
    until(lambda: 6 not in tables_of(source)["leaf1"])
    assert 5 in tables_of(source)["leaf1"]
    dumps = [call for call in fabric.calls() if call.startswith("dump_fts")]
    assert 2 <= len(dumps) <= 4, "the tables are read rarely"


def test_without_the_tool_the_counters_continue(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ib_forwarding, "TABLES_RETRY_S", 0.1)
    fabric.break_tool("dump_fts", "ibwarn: [1] mad_rpc_open_port: client_register failed")
    source = IbFabric(HostFS())
    try:
        last: Object = all_found(source)[-1]
        assert last.info["error"].startswith("dump_fts: ibwarn")
        assert last.info["tables"] == []
        assert len(all_found(source)) == 17
        fabric.repair_tools()
        until(lambda: "error" not in all_found(source)[-1].info)
    finally:
        source.stop()


def test_what_has_no_room_is_counted(source: IbFabric, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ib_forwarding, "MAX_TABLES_BYTES", 60)
    info = all_found(source)[-1].info
    assert info["left_out"] == 4 - len(info["tables"])
    assert 1 <= len(info["tables"]) <= 3


@pytest.mark.parametrize(
    ("lid", "options", "engine"),
    [
        ("0x1", "# comment\nrouting_engine ar_updn,updn\n", "ar_updn,updn"),
        ("0x1", "routing_engine (null)\n", ""),
        ("0x2", "routing_engine ftree\n", ""),
        ("0x1", None, ""),
    ],
)
def test_the_routing_engine_is_that_of_a_subnet_manager_on_this_node(
    tmp_path: Path, lid: str, options: str, engine: str
) -> None:
    tree = Tree(tmp_path)
    for name, value in (("lid", "0x1"), ("sm_lid", lid)):
        tree.write(f"sys/class/infiniband/mlx5_0/ports/1/{name}", value)
    if options is not None:
        tree.write("etc/opensm/opensm.conf", options)
    assert routing_engine(HostFS(str(tmp_path))) == engine
