"""Full receivers, and what only looks like an incast, where hosts of several NICs are all that is
watched: hand-made rates."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from collectors.wire import Object
from fabmon.analysis.finding import Change
from fabmon.fabric.model import Host
from tests.builders import frame, hello, new_pipeline, tick, up

LINE_GBPS = 400
BYTES_PER_GBIT = 1e9 / 8
SECONDS = 20

ETHERNET = ("netdev_tx_bytes", "netdev_rx_bytes", "netdev_up")
CNPS = (*ETHERNET, "rdma_cnp_handled")
MARKS = (*CNPS, "rdma_ecn_marked")
INFINIBAND = ("ib_tx_bytes", "ib_rx_bytes", "ib_state", "ib_tx_wait")

Nic = tuple[int, int]
"""The number of a host, from 1 on, and of its rail."""

Rates = Mapping[Nic, tuple[float, float]]
"""What each NIC sends and receives, Gb/s."""


def opened(hosts: int, rails: int, gbps: Rates, metrics: tuple[str, ...]) -> list[str]:
    """The findings of hosts of 400G whose NICs send and receive at steady rates; none of
    their queue counters ever grows."""
    names = [f"gpu{number:03}" for number in range(1, hosts + 1)]
    kind = "infiniband" if metrics is INFINIBAND else "ethernet"
    nics = [Object(f"mlx5_{rail}", kind, f"mlx5_{rail}", {}, metrics) for rail in range(rails)]
    hellos = {name: hello(*nics) for name in names}
    speeds = (("*", LINE_GBPS * 1e9),)
    pipeline = new_pipeline([Host(name=name, speeds=speeds) for name in names])
    found = []
    for second in range(SECONDS):
        frames = {}
        for number, name in enumerate(names, start=1):
            values: list[int | None] = []
            for rail in range(rails):
                sent, received = (
                    int(each * second * BYTES_PER_GBIT) for each in gbps.get((number, rail), (0, 0))
                )
                state = 4 if metrics is INFINIBAND else 1
                values += [sent, received, state, *[0] * (len(metrics) - len(ETHERNET))]
            frames[name] = frame(second, *values)
        scene = pipeline.accept(
            tick(second, frames, {} if second else hellos, () if second else up(*names))
        )
        found += [
            f"{finding.cause} {finding.subject}"
            for change, finding in scene.changes
            if change is Change.OPEN
        ]
    return found


@pytest.mark.parametrize("metrics", [ETHERNET, CNPS, MARKS, INFINIBAND])
@pytest.mark.parametrize("sending_rail", [0, 1])
def test_one_flow_at_line_rate_is_no_incast_whichever_rail_it_comes_from(
    metrics: tuple[str, ...], sending_rail: int
) -> None:
    gbps = {(host, rail): (200.0, 200.0) for host in range(3, 9) for rail in (0, 1)}
    gbps[1, sending_rail] = (390.0, 0.0)
    gbps[2, 0] = (0.0, 390.0)
    assert opened(8, 2, gbps, metrics) == []


@pytest.mark.parametrize("metrics", [ETHERNET, CNPS, MARKS, INFINIBAND])
def test_a_host_that_reads_from_unwatched_storage_while_others_write_to_it_is_no_incast(
    metrics: tuple[str, ...],
) -> None:
    written = (110, 150, 180, 190, 205, 230, 120)
    gbps: dict[Nic, tuple[float, float]] = {
        (host, 0): (each, 0.0) for host, each in enumerate(written, start=2)
    }
    gbps[1, 0] = (0.0, 392.0)
    assert opened(8, 1, gbps, metrics) == []


SENDERS_GBPS = (48.0, 93.0, 98.0, 57.0, 61.0, 35.0)
"""What six senders of an incast send to one receiver."""


@pytest.mark.parametrize(("metrics", "is_found"), [(CNPS, False), (INFINIBAND, True)])
def test_a_receiver_that_is_always_full_needs_a_sign_of_a_queue_but_on_infiniband(
    metrics: tuple[str, ...], is_found: bool
) -> None:
    """Counters of RDMA over Ethernet would grow; senders may wait unnoticed for credits."""
    gbps = {(host, 0): (each, 0.0) for host, each in enumerate(SENDERS_GBPS, start=1)}
    gbps[7, 0] = (0.0, 392.0)
    assert opened(7, 1, gbps, metrics) == (["incast gpu007/mlx5_0"] if is_found else [])


def double_tree(hosts: int, rails: int, flow_gbps: float) -> dict[Nic, tuple[float, float]]:
    """An all-reduce on each rail over two binary trees, one the reverse of the other: every host
    sends a flow to its parent in both, and receives one of each of its children."""
    gbps: dict[Nic, tuple[float, float]] = {}
    for host in range(1, hosts + 1):
        places = (host, hosts + 1 - host)
        parents = sum(place > 1 for place in places)
        children = sum(child <= hosts for place in places for child in (2 * place, 2 * place + 1))
        sends_and_receives = (flow_gbps * parents, flow_gbps * children)
        gbps |= {(host, rail): sends_and_receives for rail in range(rails)}
    return gbps


@pytest.mark.parametrize("metrics", [ETHERNET, CNPS, MARKS, INFINIBAND])
@pytest.mark.parametrize("hosts", [3, 13])
def test_the_root_of_a_tree_is_no_incast_where_its_senders_receive_as_long(
    hosts: int, metrics: tuple[str, ...]
) -> None:
    """A root gets two flows from hosts whose other flows take as long: it holds nobody."""
    assert opened(hosts, 2, double_tree(hosts, 2, 0.466 * LINE_GBPS), metrics) == []


def test_senders_that_count_nothing_are_an_incast_where_they_receive_less() -> None:
    gbps = {(host, 0): (each, 200.0) for host, each in enumerate(SENDERS_GBPS, start=1)}
    gbps |= {(host, 0): (200.0, 0.0) for host in range(8, 14)}
    gbps[7, 0] = (0.0, 392.0)
    assert opened(13, 1, gbps, ETHERNET) == ["incast gpu007/mlx5_0"]


@pytest.mark.parametrize("storage_rail", [0, 1])
def test_an_incast_is_found_while_its_senders_read_from_storage_over_another_rail(
    storage_rail: int,
) -> None:
    """Six hosts send to one, and read 60 Gb/s from storage that is not watched: over the same rail,
    that storage may be what fills it."""
    gbps = {(host, 0): (each, 0.0) for host, each in enumerate(SENDERS_GBPS, start=1)}
    gbps[7, 0] = (0.0, 392.0)
    for host in range(1, 7):
        sent, received = gbps.get((host, storage_rail), (0.0, 0.0))
        gbps[host, storage_rail] = (sent, received + 60)
    expected = ["incast gpu007/mlx5_0"] if storage_rail == 1 else []
    assert opened(7, 2, gbps, ETHERNET) == expected
