"""The wire as the node writes it."""

from __future__ import annotations

import json
from typing import Any, List

from collectors import wire
from collectors.wire import Object


def layout(*metrics: str, every: int = 1, port: str = "eth0") -> wire.BlockLayout:
    return wire.BlockLayout("netdev", every, [Object(port, "ethernet", port, {"mtu": 1}, metrics)])


def parsed(line: bytes) -> List[Any]:
    assert line.endswith(b"\n")
    said: List[Any] = json.loads(line)
    return said


def test_a_hello_describes_every_value_of_a_frame() -> None:
    kind, said = parsed(wire.hello([layout("netdev_tx_bytes", "netdev_up")], {"node": "x"}))
    assert kind == "hello"
    assert said["wire"] == 1
    assert said["encoding"] == "plain"
    assert said["node"] == "x"
    assert said["metrics"] == {
        "netdev_tx_bytes": {"unit": "bytes", "kind": "wrap64"},
        "netdev_up": {"unit": "state", "kind": "gauge"},
    }
    (block,) = said["blocks"]
    assert block["objects"][0] == {
        "id": "eth0",
        "kind": "ethernet",
        "port": "eth0",
        "info": {"mtu": 1},
        "metrics": ["netdev_tx_bytes", "netdev_up"],
    }


def test_the_layout_hash_follows_positions_and_not_facts() -> None:
    one = wire.layout_hash([layout("netdev_tx_bytes", "netdev_up")])
    assert len(one) == 16
    assert one == wire.layout_hash([layout("netdev_tx_bytes", "netdev_up")])
    assert one != wire.layout_hash([layout("netdev_up", "netdev_tx_bytes")])
    assert one != wire.layout_hash([layout("netdev_tx_bytes", "netdev_up", port="eth1")])
    assert one != wire.layout_hash([layout("netdev_tx_bytes", "netdev_up", every=10)])


def test_a_frame_is_one_line_with_null_for_what_is_absent() -> None:
    line = wire.frame(7, 1, 2, [[3, 4, None], None])
    assert line == b'["frame",7,1,2,[[3,4,null],null]]\n'


def test_no_text_can_break_a_line_or_paint() -> None:
    line = wire.notice("lost", "ib", "a\nb\x1b[2J\u2028")
    assert line.count(b"\n") == 1
    assert b"\x1b" not in line
    assert parsed(line)[1]["text"] == "a\nb\x1b[2J\u2028"
