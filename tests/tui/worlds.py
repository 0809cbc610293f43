"""Fabrics for the tests of the screen."""

from __future__ import annotations

from functools import cache

from fabmon.fabric.wire.messages import Notice
from tests.tui.fabrics import fabric
from tests.tui.scenes import World

HEALTHY = World()
COLLISION = World(collides=30)


def troubled() -> World:
    """A collision, a cable down, a node lost, two never reached, a gap in time, a notice."""
    made = fabric(bare=("gpu006", "gpu007"))
    down = made.node("gpu003").ports[2]
    assert down.peer is not None
    return World(
        made,
        collides=30,
        down=(down.row, down.peer),
        quiet=(("gpu005", 45),),
        failed=(
            ("gpu006", "the host key of gpu006 has changed", "host key"),
            ("gpu007", "the host key of gpu007 has changed", "host key"),
        ),
        gap=range(20, 26),
        notices=(
            (
                "gpu001",
                Notice("absent", "ethtool", "mlx5_0", "phy_symbol_errors", "unsupported", ""),
            ),
        ),
    )


def connecting() -> World:
    """Twenty-four nodes: switches up, some hosts on the way, seven refused for the same reason."""
    made = fabric(leaves=4, hosts=4, bare=tuple(f"gpu{n:03d}" for n in range(1, 17)))
    return World(
        made,
        connecting=("gpu003", "gpu004"),
        failed=tuple((f"gpu{n:03d}", "connection refused", "refused") for n in range(5, 12)),
    )


@cache
def big() -> World:
    """1,024 hosts of 8 rails under 32 leaves, 8 spines."""
    return World(fabric(leaves=32, spines=8, hosts=32), collides=30)
