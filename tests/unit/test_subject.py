"""Nodes that others report: switches seen in band, a fabric manager's."""

from __future__ import annotations

import msgspec

from collectors.wire import Object
from fabmon.fabric.model import Host
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.history.history import History
from tests.builders import frame, hello, port, tick, up


def port_of(node: str, name: str) -> Object:
    return Object(f"{node}/{name}", "infiniband", name, {}, ("netdev_tx_bytes",), node)


def seen(hosts: list[Host], sender: str, *objects: Object) -> Snapshot:
    history = History(hosts)
    said = hello(*objects)
    values = [100] * sum(len(each.metrics) for each in objects)
    history.accept(
        tick(0, hellos={sender: said}, frames={sender: frame(0, *values)}, statuses=up(sender))
    )
    more = [value + 50 for value in values]
    return history.accept(tick(1, frames={sender: frame(1, *more)}))


def asked(name: str) -> Host:
    return Host(name=name, sources=("+ib_fabric",))


def test_a_node_that_was_asked_tells_of_switches_that_nobody_lists() -> None:
    snapshot = seen([asked("gpu1")], "gpu1", port("eth0"), port_of("leaf9", "p1"))
    assert [node.name for node in snapshot.fabric.nodes] == ["gpu1", "leaf9"]
    leaf = snapshot.fabric.node("leaf9")
    assert leaf.role == "switch"
    row = leaf.ports[0].row
    assert snapshot.column("tx_bps")[row] == 400
    assert snapshot.age_s[row] == 0
    assert snapshot.statuses["leaf9"].state is NodeState.UP
    assert snapshot.statuses["leaf9"].reason == "reported by gpu1"


def test_a_node_that_was_not_asked_speaks_for_itself_alone() -> None:
    snapshot = seen([Host(name="gpu1")], "gpu1", port("eth0"), port_of("leaf9", "p1"))
    assert [node.name for node in snapshot.fabric.nodes] == ["gpu1"]
    assert [each.name for each in snapshot.fabric.ports] == ["eth0"]


def test_nobody_speaks_for_a_node_that_is_watched_itself() -> None:
    hosts = [asked("gpu1"), Host(name="leaf9", role="switch")]
    snapshot = seen(hosts, "gpu1", port("eth0"), port_of("leaf9", "p1"))
    assert snapshot.fabric.node("leaf9").ports == ()


def test_a_node_that_is_watched_by_its_full_name_is_watched_itself() -> None:
    hosts = [asked("gpu1"), Host(name="gpu2.example.com"), Host(name="10.0.0.3")]
    reported = port_of("gpu2", "mlx5_0"), port_of("10.0.0.4", "mlx5_0"), port_of("gpu5.a", "mlx5_0")
    snapshot = seen(hosts, "gpu1", port("eth0"), *reported)
    names = {node.name for node in snapshot.fabric.nodes}
    assert names == {"gpu1", "gpu2.example.com", "10.0.0.3", "10.0.0.4", "gpu5.a"}


def test_when_the_sender_is_lost_what_it_reported_is_stale() -> None:
    history = History([asked("gpu1")])
    said = hello(port_of("leaf9", "p1"))
    history.accept(
        tick(0, hellos={"gpu1": said}, frames={"gpu1": frame(0, 1)}, statuses=up("gpu1"))
    )
    lost = NodeStatus("gpu1", NodeState.LOST, 1, "gone", "timeout")
    snapshot = history.accept(tick(1, statuses=(lost,)))
    assert snapshot.statuses["leaf9"].state is NodeState.STALE
    assert snapshot.statuses["leaf9"].reason == "reported by gpu1, which is lost"


def test_a_feed_may_come_to_know_of_nodes_by_itself() -> None:
    history = History([])
    found = tick(
        0,
        hellos={"gpu7": hello(port("eth0"))},
        frames={"gpu7": frame(0, 1)},
        statuses=up("gpu7"),
    )
    snapshot = history.accept(msgspec.structs.replace(found, hosts=(Host(name="gpu7"),)))
    assert [node.name for node in snapshot.fabric.nodes] == ["gpu7"]
    assert snapshot.statuses["gpu7"].state is NodeState.UP
