"""Queue pairs become flows: joined by their numbers, and left open where those do not tell."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from fabmon.fabric.fabric_builder import PortRows, build
from fabmon.fabric.flows.flow_table import Connections, LeafPair
from fabmon.fabric.flows.queue_pairs import queue_pairs_of, roce_source_port
from fabmon.fabric.model import Host
from fabmon.fabric.port_arrays import NONE
from tests import work
from tests.builders import hello, neighbour, port
from tests.connections import Wires

NICS = ("mlx5_0", "mlx5_1")


def connections(wires: Wires, *names: str, silent: tuple[str, ...] = ()) -> Connections:
    """Of hosts with two NICs, each at a leaf of its own number."""
    hellos = {}
    for number, name in enumerate(names):
        leaf = f"leaf{number // 2 + 1}"
        nics = [port(nic, f"{name}-{nic}", driver="mlx5_core") for nic in NICS]
        cables = [
            neighbour(nic, "")._replace(
                id=f"lldp/{nic}", info={"dev": nic, "peer_node": leaf, "peer_port": f"{name}{nic}"}
            )
            for nic in NICS
        ]
        reported = [] if name in silent else [wires.report(f"{name}/{nic}") for nic in NICS]
        hellos[name] = hello(*nics, *cables, *reported)
    fabric = build([Host(name=name) for name in names], hellos, PortRows(), 1)
    pairs_of = {name: pairs for name, said in hellos.items() if (pairs := queue_pairs_of(said))}
    return Connections(fabric, pairs_of)


def ways(connections: Connections) -> list[str]:
    """`a/mlx5_0 10 > b/mlx5_1`; `?n` where n could be the other end."""
    table, ports = connections.flows, connections.fabric.ports
    return sorted(
        f"{ports[src].id} {lqpn} > {ports[dst].id if dst != NONE else f'?{open_}'}"
        for src, lqpn, dst, open_ in zip(
            table.src.tolist(),
            table.lqpn.tolist(),
            table.dst.tolist(),
            table.candidates.tolist(),
            strict=True,
        )
    )


def test_flows_stay_joined_while_only_facts_of_ports_change() -> None:
    wires = Wires().connect("a/mlx5_0", "b/mlx5_1", 10, 20, job="7")
    before = connections(wires, "a", "b")
    joined, leaves = before.flows, before.leaves
    reports = before._reports

    def after(**info: str) -> Connections:
        """With other facts of the first port."""
        first, *others = before.fabric.ports
        first = msgspec.structs.replace(first, info={**first.info, **info})
        fabric = msgspec.structs.replace(before.fabric, ports=(first, *others))
        return Connections(fabric, reports, before)

    upgraded = after(firmware="28.40")
    assert upgraded.flows is joined
    assert upgraded.leaves is leaves
    # Another driver computes other source ports.
    replaced = after(driver="bnxt_en")
    assert replaced.flows is not joined
    assert replaced.flows.sport.tolist() != joined.sport.tolist()
    # A node that reports its queue pairs again may have other ones.
    moved = Connections(before.fabric, {**reports, "a": replace(reports["a"])}, before)
    assert moved.flows is not joined


def test_two_ends_name_each_other() -> None:
    wires = Wires().connect("a/mlx5_0", "b/mlx5_1", 10, 20, job="7")
    found = connections(wires, "a", "b")
    assert ways(found) == ["a/mlx5_0 10 > b/mlx5_1", "b/mlx5_1 20 > a/mlx5_0"]
    table = found.flows
    assert table.sport.tolist() == roce_source_port(np.array([10] * 2), np.array([20] * 2)).tolist()
    assert [table.owner(n).label for n in range(2)] == ["job 7", "job 7"]


def test_a_peer_that_is_not_watched_or_silent_is_nobody() -> None:
    wires = Wires().connect("a/mlx5_0", "b/mlx5_0", 10, 20).end("a/mlx5_1", 11, 21)
    found = connections(wires, "a", "b", silent=("b",))
    assert ways(found) == ["a/mlx5_0 10 > ?0", "a/mlx5_1 11 > ?0"]
    assert found.flows.reporting == {"a"}


def test_hosts_that_number_alike_are_not_guessed_at() -> None:
    wires = Wires().connect("a/mlx5_0", "b/mlx5_0", 10, 20).connect("c/mlx5_0", "d/mlx5_0", 10, 20)
    assert set(ways(connections(wires, *"abcd"))) == {
        *("a/mlx5_0 10 > ?2", "b/mlx5_0 20 > ?2"),
        *("c/mlx5_0 10 > ?2", "d/mlx5_0 20 > ?2"),
    }


def test_the_job_decides_between_them_where_it_is_known_of_all() -> None:
    def of(job: str) -> list[str]:
        wires = Wires().connect("a/mlx5_0", "b/mlx5_0", 10, 20, job="7")
        return ways(connections(wires.connect("c/mlx5_0", "d/mlx5_0", 10, 20, job=job), *"abcd"))

    assert "a/mlx5_0 10 > b/mlx5_0" in of("8")
    assert "d/mlx5_0 20 > c/mlx5_0" in of("8")
    assert all(way.endswith("?2") for way in of("7"))
    assert all(way.endswith("?2") for way in of(""))


def test_ends_of_different_jobs_are_no_connection() -> None:
    wires = Wires().end("a/mlx5_0", 10, 20, job="7").end("b/mlx5_0", 20, 10, job="8")
    assert ways(connections(wires, "a", "b")) == ["a/mlx5_0 10 > ?0", "b/mlx5_0 20 > ?0"]


def test_sequence_numbers_that_agree_both_ways_decide_and_the_last_is_left_over() -> None:
    wires = Wires().connect("a/mlx5_0", "b/mlx5_0", 10, 20, psn=500)
    wires.connect("c/mlx5_0", "d/mlx5_0", 10, 20)
    assert ways(connections(wires, *"abcd")) == [
        "a/mlx5_0 10 > b/mlx5_0",
        "b/mlx5_0 20 > a/mlx5_0",
        "c/mlx5_0 10 > d/mlx5_0",
        "d/mlx5_0 20 > c/mlx5_0",
    ]


def test_a_queue_pair_is_not_its_own_peer() -> None:
    assert ways(connections(Wires().end("a/mlx5_0", 5, 5), "a")) == ["a/mlx5_0 5 > ?0"]
    wires = Wires().connect("a/mlx5_0", "b/mlx5_0", 5, 5)
    assert ways(connections(wires, "a", "b")) == [
        "a/mlx5_0 5 > b/mlx5_0",
        "b/mlx5_0 5 > a/mlx5_0",
    ]


def test_flows_and_source_ports_from_leaf_to_leaf() -> None:
    wires = Wires().connect("a/mlx5_0", "b/mlx5_0", 1, 2)
    wires.connect("a/mlx5_0", "c/mlx5_0", 3, 4).connect("a/mlx5_1", "d/mlx5_1", 2, 6)
    found = connections(wires, *"abcd")
    assert found.leaves.names == ("leaf1", "leaf2")
    assert sorted(found.between_leaves()) == [
        LeafPair("leaf1", "leaf1", 2, 1),
        LeafPair("leaf1", "leaf2", 2, 1),
        LeafPair("leaf2", "leaf1", 2, 1),
    ]


def test_nobody_reported_is_no_flow() -> None:
    assert len(connections(Wires(), "a", "b", silent=("a", "b")).flows) == 0
    found = connections(Wires(), "a", "b")
    assert len(found.flows) == 0
    assert found.flows.reporting == {"a", "b"}


def test_half_a_million_queue_pairs_are_joined_without_a_look_at_each() -> None:
    lots, count = np.random.default_rng(1), 1024 * 8 * 32
    ends = lots.integers(64, 1 << 24, (2, count))
    nics = lots.permutation(2 * count) // 64
    wires = [Wires() for _ in range(1024)]
    for number, (low, high) in enumerate(ends.T.tolist()):
        for nic, own, peer in ((number, low, high), (count + number, high, low)):
            host, rail = divmod(int(nics[nic]), 8)
            wires[host].end(f"h{host}/n{rail}", own, peer)
    hellos = {
        f"h{host}": hello(
            *(port(f"n{rail}") for rail in range(8)),
            *(wires[host].report(f"h{host}/n{rail}") for rail in range(8)),
        )
        for host in range(1024)
    }
    fabric = build([Host(name=name) for name in hellos], hellos, PortRows(), 1)
    pairs_of = {name: pairs for name, said in hellos.items() if (pairs := queue_pairs_of(said))}
    with work.counted() as done:
        table = Connections(fabric, pairs_of).flows
    assert len(table) == 2 * count
    assert (table.dst != NONE).mean() > 0.999
    assert done.lines < count
