"""Bytes per tick on the wire: a GPU host with 8 HCAs, 8 GPUs of 18 NVLinks and 10 NICs."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from collectors import wire
from tests.bench.measure import tell
from tests.fixtures import nvml
from tests.fixtures.hosts import hgx_host

TICKS = 60
MOVING = 0.3


def main() -> None:
    """Print the size of its frames, packed and plain, while 30 % of its counters change."""
    blocks, every = _first_frame()
    chance = random.Random(7)
    places = [
        (number, place)
        for number, block in enumerate(blocks)
        if block is not None
        for place, value in enumerate(block)
        if place and value is not None
    ]
    moving = chance.sample(places, int(len(places) * MOVING))
    encode = wire.FramePacker().frame
    sizes, plain = [], []
    for seq in range(TICKS):
        for number, place in moving:
            block = blocks[number]
            assert block is not None
            block[place] += int(chance.gauss(5e10, 5e8))
        for block in blocks:
            if block is not None:
                block[0] += 10**9 + chance.randrange(10**6)
        now = [
            None if block is None or (seq + place) % every[place] else list(block)
            for place, block in enumerate(blocks)
        ]
        sizes.append(len(encode(seq, seq * 10**9, seq * 10**9, now)))
        plain.append(len(wire.dump(now)))
    tell(
        "wire_gpu_host",
        {
            "values": len(places),
            "bytes_per_s_packed": round(statistics.mean(sizes[2:])),
            "bytes_per_s_plain": round(statistics.mean(plain[2:])),
        },
    )


def _first_frame() -> tuple[list[list[Any] | None], list[int]]:
    """The blocks, and the number of ticks between two reads of each."""
    with tempfile.TemporaryDirectory() as folder:
        hgx_host(folder, netdevs=10)
        done = subprocess.run(
            [sys.executable, "-m", "collectors", "--root", folder, "--once"],
            env={**os.environ, nvml.VARIABLE: str(Path(folder) / nvml.SCENARIO)},
            capture_output=True,
            check=True,
        )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    blocks: list[list[Any] | None] = next(line[4] for line in lines if line[0] == "frame")
    hello = next(line[1] for line in lines if line[0] == "hello")
    return blocks, [block["every"] for block in hello["blocks"]]


if __name__ == "__main__":
    main()
