"""What the hosts behind the edge ports of a leaf show of a queue, by what each of them counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.edge_queues import EdgeQueues
from fabmon.analysis.fabric_structure import build_structure
from fabmon.session.config import load
from tests.builders import LeafSpine, Watched

GBIT = 1e9
MARKS, CNPS_SENT, CNPS = "rdma_ecn_marked", "rdma_cnp_sent", "rdma_cnp_handled"


def edge_queues(per_gbit: dict[str, float], is_inward: bool, seconds: int = 20) -> EdgeQueues:
    """Of four hosts of 400G that exchange 100 Gb/s with spines, and count so many events a Gbit for
    the last `seconds`."""
    fabric = LeafSpine(uplinks=4, hosts=4, rate_bps=400 * GBIT, metrics=tuple(per_gbit))
    for number in range(1, 5):
        fabric.send(100 * GBIT, f"gpu{number:03}/eth0", f"leaf1/up{number}")
        fabric.send(100 * GBIT, f"spine{number}/swp1", f"leaf1/down{number}")
    watched = Watched(fabric)
    watched.seconds(20)
    for metric, count in per_gbit.items():
        for server in fabric.servers:
            fabric.counted[f"{server}/eth0", metric] = 100 * count
    snapshot = watched.seconds(seconds).snapshot
    inputs = DetectorInput(snapshot, build_structure(snapshot.fabric))
    (group,) = (each for each in inputs.structure.groups if each.is_inward == is_inward)
    return EdgeQueues(inputs, load(Path("/dev/null")).thresholds.queue, group)


@pytest.mark.parametrize(
    ("per_gbit", "is_inward", "is_queue"),
    [
        ({CNPS: 6}, False, True),
        ({CNPS: 4}, False, False),
        ({CNPS: 4, MARKS: 1000, CNPS_SENT: 1000}, False, False),
        ({MARKS: 160, CNPS: 0}, True, True),
        ({MARKS: 140, CNPS: 1000}, True, False),
        ({CNPS_SENT: 6, CNPS: 0}, True, True),
        ({CNPS_SENT: 4, CNPS: 1000}, True, False),
        ({MARKS: 140, CNPS_SENT: 6}, True, False),
    ],
)
def test_senders_count_cnps_and_receivers_marks_else_the_cnps_that_they_send(
    per_gbit: dict[str, float], is_inward: bool, is_queue: bool
) -> None:
    queues = edge_queues(per_gbit, is_inward)
    edges = queues._group.edges
    assert len(edges) == 4
    assert (queues.are_lasting() == is_queue).all()
    assert queues.are_calm(edges) != is_queue


@pytest.mark.parametrize(("per_gbit", "is_inward"), [({CNPS: 60}, False), ({MARKS: 2000}, True)])
def test_a_few_seconds_of_cnps_or_marks_are_neither_lasting_nor_calm(
    per_gbit: dict[str, float], is_inward: bool
) -> None:
    queues = edge_queues(per_gbit, is_inward, seconds=4)
    assert not queues.are_lasting().any()
    assert not queues.are_calm(queues._group.edges)


@pytest.mark.parametrize(
    ("per_gbit", "is_inward"), [({MARKS: 0}, False), ({CNPS: 0}, True), ({}, True)]
)
def test_hosts_that_count_nothing_of_a_direction_are_not_calm(
    per_gbit: dict[str, float], is_inward: bool
) -> None:
    queues = edge_queues(per_gbit, is_inward)
    assert not queues.are_calm(queues._group.edges)
