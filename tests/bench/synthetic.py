"""A thousand nodes that never were: hellos and frames as bytes of the wire."""

from __future__ import annotations

import random
from collections.abc import Iterator

from collectors import wire
from collectors.catalog import CATALOG
from collectors.wire import Object

_SECOND_NS = 1_000_000_000


def port_metrics(topics: tuple[str, ...], count: int) -> tuple[str, ...]:
    """The first `count` catalog names of some topics that begin with what a RoCE port has."""
    names = [name for name, metric in CATALOG.items() if metric.topic in topics]
    return tuple(names[:count])


class SyntheticNode:
    """One node of 8 ports and `series` counters, 30 % of which move from tick to tick."""

    def __init__(self, name: str, series: int, rails: int = 8) -> None:
        self._random = random.Random(name)
        usable = [metric.name for metric in CATALOG.values() if metric.topic != "probe"]
        wire_bytes = ["ib_tx_bytes", "ib_rx_bytes", "ib_rate_bps", "ib_state"]
        rest = [each for each in usable if each not in wire_bytes]
        metrics = (wire_bytes + rest)[: series // rails]
        self._layout = [
            wire.BlockLayout(
                "ib",
                1,
                [
                    Object(
                        f"mlx5_{r}", "infiniband", f"mlx5_{r}", {"mac": f"{name}-{r}"}, (*metrics,)
                    )
                    for r in range(rails)
                ],
            )
        ]
        self._values = [self._random.randrange(1 << 40) for _ in range(len(metrics) * rails)]
        fixed = {metrics.index("ib_rate_bps"): 400_000_000_000, metrics.index("ib_state"): 4}
        for rail in range(rails):
            for position, value in fixed.items():
                self._values[rail * len(metrics) + position] = value
        self._moving = [
            i for i in range(len(self._values)) if i % len(metrics) not in fixed and i % 10 < 3
        ]
        self.series = len(self._values)

    def hello(self) -> bytes:
        """The line that announces the layout."""
        return wire.hello(self._layout, {"probe": "bench", "interval_s": 1.0})

    def frame(self, seq: int) -> bytes:
        """The line of tick `seq`; each call moves the counters on."""
        for position in self._moving:
            self._values[position] += self._random.randrange(1 << 32)
        mono_ns = (seq + 1) * _SECOND_NS
        return wire.frame(seq, mono_ns, mono_ns, [[mono_ns, *self._values]])


def ticks(nodes: int, series: int, count: int) -> Iterator[list[tuple[str, bytes]]]:
    """Lines by tick: first the hellos, then `count` ticks of frames, (node, line) each."""
    fabric = {f"gpu{i:04}": SyntheticNode(f"gpu{i:04}", series) for i in range(nodes)}
    yield [(name, node.hello()) for name, node in fabric.items()]
    for seq in range(count):
        yield [(name, node.frame(seq)) for name, node in fabric.items()]
