"""Why a full link is no finding: what the status line says of it."""

from __future__ import annotations

from fabmon.analysis.scene import Scene
from tests.builders import LeafSpine, Watched

RATE = 400e9
SECONDS = 12


def why(scene: Scene) -> dict[str, str]:
    """By port: why it is full and not flagged."""
    ports = scene.snapshot.fabric.ports
    return {ports[row].display_name: text for row, text in scene.why_unflagged.items()}


def test_a_link_that_one_nic_fills_is_no_busier_than_it() -> None:
    watched = Watched(LeafSpine(uplinks=4, hosts=8, rate_bps=RATE))
    watched.fabric.send(0.97 * RATE, "gpu001/eth0", "leaf1/up2")
    found = why(watched.seconds(SECONDS))
    assert watched.opened() == []
    assert found["leaf1 up2"] == "no busier than its NICs"


def test_a_full_link_beside_a_slow_nic_is_that_of_one_nic_at_both_ends() -> None:
    watched = Watched(LeafSpine(uplinks=4, hosts=8, rate_bps=RATE))
    watched.fabric.send(0.97 * RATE, "gpu001/eth0", "leaf1/up2")
    watched.fabric.send(0.2 * RATE, "gpu002/eth0", "leaf1/up1")
    found = why(watched.seconds(SECONDS))
    assert watched.opened() == []
    text = "one NIC accounts for it (gpu001 r0)"
    assert (found["leaf1 up2"], found["spine2 dn1"]) == (text, text)


def test_a_link_of_a_collision_is_flagged_and_has_no_such_reason() -> None:
    watched = Watched(LeafSpine(uplinks=4, hosts=8, rate_bps=RATE, metrics=("rdma_cnp_handled",)))
    for host in (1, 2):
        watched.fabric.send(0.49 * RATE, f"gpu00{host}/eth0", "leaf1/up1")
        watched.fabric.counted[f"gpu00{host}/eth0", "rdma_cnp_handled"] = 50_000
    found = why(watched.seconds(SECONDS))
    assert watched.opened() == ["ecmp_collision leaf1/up1"]
    assert "leaf1 up1" not in found


def test_a_calm_fabric_has_none() -> None:
    watched = Watched(LeafSpine(uplinks=4, hosts=8, rate_bps=RATE))
    watched.fabric.send(0.6 * RATE, "gpu001/eth0", "leaf1/up2")
    assert why(watched.seconds(SECONDS)) == {}
