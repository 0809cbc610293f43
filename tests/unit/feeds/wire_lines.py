"""Lines of the wire as a probe with two metrics sends them, and waiting for ticks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable

from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.feeds.live import LiveFeed


def hello_line(
    layout: str = "0123456789abcdef",
    boot_id: str = "boot-1",
    hostname: str = "node1",
    metrics: Iterable[str] = ("rx_bytes", "tx_bytes"),
    **more: object,
) -> bytes:
    names = list(metrics)
    port = {"id": "eth0", "kind": "netdev", "port": "eth0", "info": {}, "metrics": names}
    body = {
        "wire": 1,
        "layout": layout,
        "blocks": [{"source": "netdev", "every": 1, "objects": [port]}],
        "metrics": {name: {"unit": "B", "kind": "wrap64"} for name in names},
        "interval_s": 1.0,
        "hostname": hostname,
        "boot_id": boot_id,
        **more,
    }
    return json.dumps(["hello", body]).encode() + b"\n"


def frame_line(seq: int, values: Iterable[int | None] = (1, 2)) -> bytes:
    block = [seq * 10**9, *values]
    return json.dumps(["frame", seq, seq * 10**9, seq * 10**9, [block]]).encode() + b"\n"


async def watch(
    feed: LiveFeed, until: Callable[[dict[str, NodeStatus]], bool], timeout_s: float = 60.0
) -> tuple[dict[str, NodeStatus], list[Tick]]:
    """Take ticks until the latest statuses satisfy `until`; returns them and the ticks."""
    latest: dict[str, NodeStatus] = {}
    ticks: list[Tick] = []
    try:
        async with asyncio.timeout(timeout_s):
            async for tick in feed:
                ticks.append(tick)
                latest.update({status.node: status for status in tick.statuses})
                if until(latest):
                    break
    except TimeoutError:
        states = {name: (status.state.value, status.reason) for name, status in latest.items()}
        raise AssertionError(f"not within {timeout_s} s: {states}") from None
    return latest, ticks


def are(state: NodeState, *names: str) -> Callable[[dict[str, NodeStatus]], bool]:
    def check(latest: dict[str, NodeStatus]) -> bool:
        return all(name in latest and latest[name].state is state for name in names)

    return check


def frames_of(ticks: Iterable[Tick], node: str) -> list[int]:
    return [frame.seq for tick in ticks for name, frame in tick.frames if name == node]


async def wait_for_frames(feed: LiveFeed, node: str, count: int = 2) -> list[int]:
    """Take ticks until a node has sent that many frames; their sequence numbers."""
    ticks: list[Tick] = []
    async with asyncio.timeout(240):
        while len(frames_of(ticks, node)) < count:
            ticks.append(await anext(feed))
    return frames_of(ticks, node)
