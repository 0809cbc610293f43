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
