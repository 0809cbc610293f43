"""The ports that a finding slows, as a person reads them."""

from __future__ import annotations

from fabmon.analysis.affected_ports import affected_ports
from fabmon.analysis.finding import Finding
from fabmon.fabric.model import DOWNLINK, HOST, RAIL, SWITCH, UPLINK, Fabric, Node, Port

HOSTS = ("gpu10", "gpu9", "gpu2")


def fabric() -> Fabric:
    """A leaf with a rail of each of three hosts, one without a watched far end, and two uplinks."""
    rails = [
        Port(row, name, "mlx5_0", "ethernet", RAIL, 0, "r0", row + len(HOSTS), {})
        for row, name in enumerate(HOSTS)
    ]
    down = [
        Port(row, "leaf1", f"swp{place}", "ethernet", DOWNLINK, place, f"dn{place + 1}", peer, {})
        for place, (row, peer) in enumerate(((3, 0), (4, 1), (5, 2), (6, None)))
    ]
    up = [
        Port(row, "leaf1", f"swp{row}", "ethernet", UPLINK, row, f"up{number}", None, {})
        for row, number in ((7, 10), (8, 9))
    ]
    nodes = (
        Node("leaf1", SWITCH, "leaf1", (*down, *up), {}),
        *(Node(port.node, HOST, "leaf1", (port,), {}) for port in rails),
    )
    return Fabric(1, nodes, (*rails, *down, *up), ())


def affected(cause: str, *victims: str) -> list[str]:
    finding = Finding(
        since_ns=0,
        cause=cause,
        severity="warning",
        subject="leaf1/swp7",
        rows=(7,),
        text="",
        evidence=(),
        advice="",
        confidence=1.0,
        victims=victims,
    )
    return [each.text for each in affected_ports(finding, fabric())]


def test_of_ports_that_share_a_full_link_the_nics_of_hosts_are_named_in_natural_order() -> None:
    for cause in ("ecmp_collision", "oversubscription"):
        assert affected(cause, "leaf1/swp3", "leaf1/swp0", "leaf1/swp1", "leaf1/swp2") == [
            "gpu2 r0 (leaf1 dn3)",
            "gpu9 r0 (leaf1 dn2)",
            "gpu10 r0 (leaf1 dn1)",
            "leaf1 dn4",
        ]


def test_ports_that_wait_themselves_keep_their_names_in_natural_order() -> None:
    assert affected("slow_receiver", "leaf1/swp0", "leaf1/swp7", "leaf1/swp8", "gpu9/mlx5_0") == [
        *("leaf1 dn1", "leaf1 up9", "leaf1 up10", "gpu9 r0")
    ]


def test_names_that_are_not_ports_are_kept() -> None:
    assert affected("uneven_rails", "gpu2", "gone/eth0") == ["gpu2", "gone/eth0"]
