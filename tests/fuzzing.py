"""What the fuzzers have in common: seeds, limits of time, and bytes that are nearly right.

FABMON_FUZZ_S is how long to try (`make fuzz`), FABMON_FUZZ_SEED the seed of the first case.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable

FUZZ_S = float(os.environ.get("FABMON_FUZZ_S", "12"))
"""Seconds for all of them: recordings, what verify calls intact, the wire, switches and managers
that lie, devices that stream, agents that send, and logs. Each takes a share."""
SEED = int(os.environ.get("FABMON_FUZZ_SEED", "1"))
CASE_S = 10.0
"""CPU time in which a file of a few hundred kB has been read, or refused, ten times over."""
PATIENCE_S = FUZZ_S + 600
"""Seconds after which a fuzzer hangs."""

EXTREMES = (
    *(b"1e300", b"1e-300", b"-1", b"0", b"9223372036854775807", b"99999999999999999999"),
    *(b"null", b'""', b"{}", b"[" * 20_000 + b"]" * 20_000),
)


def try_cases(attempt: Callable[[random.Random], None], share: float) -> None:
    """Try one case after the other for a share of the time; each must end soon and raise nothing.
    A failure names its seed."""
    until_s = time.monotonic() + FUZZ_S * share
    seed = SEED
    while time.monotonic() < until_s:
        start_s = time.process_time()
        try:
            attempt(random.Random(seed))
        except Exception as error:
            raise AssertionError(f"FABMON_FUZZ_SEED={seed}") from error
        assert time.process_time() - start_s < CASE_S, f"FABMON_FUZZ_SEED={seed}"
        seed += 1
    print(f"\n{seed - SEED} cases, seeds {SEED} to {seed - 1}")


def changed(data: bytes, chance: random.Random) -> bytes:
    """Some bytes with flipped bits, another number, a piece too much or too little."""
    numbers = list(re.finditer(rb"-?\d+(?:\.\d+)?", data)) if data[:1] in (b"{", b"[") else []
    if numbers and chance.random() < 0.5:
        number = chance.choice(numbers)
        return data[: number.start()] + chance.choice(EXTREMES) + data[number.end() :]
    out = bytearray(data)
    place = chance.randrange(len(out)) if out else 0
    what = chance.randrange(4)
    if what == 0:
        return bytes(out[:place])
    if what == 1:
        return bytes(out[:place] + out[place : place + 64] + out[place:])
    for _ in range(chance.choice((1, 2, 8)) if out else 0):
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)
