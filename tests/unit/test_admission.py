"""Which hellos may become part of the fabric."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collectors.wire import Object
from fabmon.fabric.admission import admit
from fabmon.fabric.messages import Hello, WireError, decode
from tests.making import ecmp, hello, neighbour, port
from tests.unit.feeds.wirelines import hello_line


def hello_of(**body: Any) -> Hello:
    """A hello with some of its keys replaced, as it comes off the wire."""
    kind, said = json.loads(hello_line())
    message = decode(json.dumps([kind, {**said, **body}]).encode())
    assert isinstance(message, Hello)
    return message


@pytest.mark.parametrize(
    "info",
    [
        {"members": 5},
        {"members": ["eth0"]},
        {"members": [{"dev": 7}]},
        {"destinations_count": "x"},
        {"destinations_count": 10**400},
        {"pfc": "on", "pfc_priorities": 3},
        {"pfc_priorities": ["3"]},
        {"roce_ecn_np": {}},
        {"pcie_width": "x16"},
        {"pcie_speed_gtps": 10**400},
        {"addresses": "10.0.0.1/24"},
        {"mac": 1},
        {"netdev": ["eth0"]},
        {"bond": {}},
    ],
)
def test_a_fact_of_the_wrong_type_is_refused_with_its_place(info: dict[str, Any]) -> None:
    said = hello(Object("eth0", "ethernet", "eth0", info, ()))
    with pytest.raises(WireError, match=r"hello: netdev: eth0: info: .* - at `\$\."):
        admit(said)


def test_facts_that_only_are_shown_may_be_anything() -> None:
    admit(hello(port("eth0", kind=[], colour={"of": ["the", 1, "rack"]}, rdma=None)))


@pytest.mark.parametrize("every", [0, -1, 10**6, 10**400])
def test_a_source_that_is_read_hardly_ever_is_refused(every: int) -> None:
    with pytest.raises(WireError, match="hello: netdev: every must be 1 to 86400 ticks"):
        admit(hello_of(blocks=[{"source": "netdev", "every": every, "objects": []}]))


@pytest.mark.parametrize("interval_s", [0, -1, 1e300])
def test_an_interval_that_no_probe_can_keep_is_refused(interval_s: float) -> None:
    with pytest.raises(WireError, match="interval_s must be more than 0 and at most a day"):
        admit(hello_of(interval_s=interval_s))


def test_what_honest_nodes_say_is_admitted() -> None:
    admit(hello(port("eth0", "02:00:00:00:00:01"), ecmp("eth0", "eth1"), neighbour("eth0", "m")))
