"""A thousand agents in one process: hellos and packed frames of training hosts over HTTP.

`python -m tests.bench.agents NODES PORT [RESTART_S]`: node i listens at `address(i)`. A host has 8
InfiniBand HCAs with the counters that the probe reads there, and 10 network interfaces; its job
sends and pauses with all others of 256. With RESTART_S one node in 32 restarts every so many
seconds: its stream ends, and the next one begins with another boot.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

import numpy as np

from collectors import wire
from collectors.catalog import CATALOG
from collectors.wire import BlockLayout, Object

HCAS, INTERFACES, IN_A_JOB = 8, 10, 256
_RESTARTING = 32
"""Of so many nodes one restarts at a time."""
_STEP_S, _SENDING_S, _STAGGER_S = 5.0, 3.0, 1.3
_BYTES, _PACKETS, _MARKS = 6e9, 6e6, 40.0
_FIXED = {"ib_rate_bps": 400_000_000_000, "ib_state": 4, "netdev_up": 1, "netdev_speed_bps": 10**9}


def address(node: int) -> str:
    """Where a node listens, on this machine."""
    return f"127.9.{node // 250}.{node % 250 + 1}"


_NOT_THERE = ("_bytes", "_packets", "dct", "naks_sent")
"""Parts of the names of counters that other drivers have, and mlx5 has not."""
_RDMA = 24


def _metrics(source: str) -> tuple[str, ...]:
    names = [name for name in CATALOG if name.startswith(f"{source}_")]
    if source == "rdma":
        return tuple(n for n in names if not any(part in n for part in _NOT_THERE))[:_RDMA]
    return tuple(name for name in names if "_ext_" not in name)


def layouts() -> list[BlockLayout]:
    """The blocks of every node."""
    hcas = [f"mlx5_{n}" for n in range(HCAS)]
    interfaces = [f"eno{n}" for n in range(INTERFACES)]
    return [
        _block("ib", "infiniband", hcas),
        _block("rdma", "infiniband", hcas),
        _block("netdev", "ethernet", interfaces),
    ]


def _block(source: str, kind: str, ports: list[str]) -> BlockLayout:
    metrics = _metrics(source)
    return BlockLayout(source, 1, [Object(port, kind, port, {}, metrics) for port in ports])


class Fleet:
    """The counters of all nodes, [nodes, values], and a queue of frames for each reader."""

    def __init__(self, nodes: int, restart_s: float) -> None:
        self.layouts = layouts()
        self.names = [
            name for block in self.layouts for item in block.objects for name in item.metrics
        ]
        self._widths = [sum(len(item.metrics) for item in each.objects) for each in self.layouts]
        self._restart_s = restart_s
        self._numbers = np.random.default_rng(7)
        self._values = np.zeros((nodes, len(self.names)), np.int64)
        for place, name in enumerate(self.names):
            self._values[:, place] = _FIXED.get(name, 0)
        self._per_s = np.array([_pace(name) for name in self.names])
        self._boots = [0] * nodes
        self._queues: dict[int, asyncio.Queue[tuple[int, int, int, list[wire.Block]]]] = {}

    async def run(self) -> None:
        """A frame of every node that is read, at every full second."""
        for seq in range(1 << 62):
            await asyncio.sleep(1.0 - time.time() % 1.0)
            wall_ns, mono_ns = time.time_ns(), time.monotonic_ns()
            self._advance(wall_ns / 1e9)
            for node, queue in list(self._queues.items()):
                queue.put_nowait((seq, wall_ns, mono_ns, self._blocks(node, mono_ns)))
                if node % 64 == 0:
                    await asyncio.sleep(0)

    def _advance(self, now_s: float) -> None:
        jobs = np.arange(len(self._values)) // IN_A_JOB
        sends = (now_s + _STAGGER_S * jobs) % _STEP_S < _SENDING_S
        share = np.where(sends, self._numbers.uniform(0.7, 1.0, len(sends)), 0.02)
        each = self._numbers.uniform(0.9, 1.0, self._values.shape)
        self._values += (self._per_s * share[:, None] * each).astype(np.int64)

    def _blocks(self, node: int, mono_ns: int) -> list[wire.Block]:
        row = self._values[node].tolist()
        ends = np.cumsum(self._widths).tolist()
        return [
            [mono_ns, *row[end - width : end]]
            for end, width in zip(ends, self._widths, strict=True)
        ]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One reader of `/stream`."""
        a, b = map(int, writer.get_extra_info("sockname")[0].split(".")[2:])
        node = a * 250 + b - 1
        queue: asyncio.Queue[tuple[int, int, int, list[wire.Block]]] = asyncio.Queue()
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            encoding = "delta-deflate" if b"delta-deflate" in request else wire.PLAIN
            about = {"probe": "bench", "interval_s": 1.0, "encoding": encoding}
            about |= {"hostname": f"gpu{node:04}", "boot_id": f"boot{node}-{self._boots[node]}"}
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n"
                b"Connection: close\r\n\r\n" + wire.hello(self.layouts, about)
            )
            encode = wire.make_encoder(encoding)
            self._queues[node] = queue
            while True:
                frame = await queue.get()
                if self._restart_s and random.random() < 1.0 / (_RESTARTING * self._restart_s):
                    self._boots[node] += 1
                    self._values[node, self._per_s > 0] = 0
                    return
                writer.write(encode(*frame))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            if self._queues.get(node) is queue:
                del self._queues[node]
            writer.close()


def _pace(name: str) -> float:
    """How much a counter grows in a second in which its node sends."""
    if CATALOG[name].kind == "gauge":
        return 0.0
    if name.endswith(("tx_bytes", "rx_bytes")):
        return _BYTES
    if name.endswith("packets"):
        return _PACKETS
    return _MARKS if "ecn" in name or "cnp" in name else 0.0


async def _main(nodes: int, port: int, restart_s: float) -> None:
    fleet = Fleet(nodes, restart_s)
    server = await asyncio.start_server(
        fleet.serve, "0.0.0.0", port, backlog=2048, reuse_address=True
    )
    print("ready", flush=True)
    async with server:
        await asyncio.gather(server.serve_forever(), fleet.run())


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2]), float([*sys.argv, "0"][3])))
