"""A burst: the bytes of a few ports, many times a second for a few seconds, beside the frames.

It has files of its own and sends what it has about once a second. One burst runs at a time; what it
may take is bounded below.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Container, Dict, List, NamedTuple, Optional, Sequence, Tuple

from collectors.hostfs import HostFS
from collectors.loop.guarded_calls import discover
from collectors.loop.requests import BadRequest, Reply, number_between
from collectors.source import Faults, Source
from collectors.sources import ib, netdev
from collectors.wire import Object

MOST_PORTS = 16
LEAST_SECONDS, MOST_SECONDS = 0.1, 60.0
LEAST_HZ, MOST_HZ = 1.0, 100.0

_MOST_NUMBERS = 4096
"""Numbers in a line: less than 100 kB of text."""

_LINE_S = 1.0
_VALUES = 2
_NONE = "no byte counter that may be read so often"

MakeSource = Callable[[HostFS, Container[str]], Source]
Reader = Tuple[Source, List[Object]]
"""A source and its objects, of which every one is wanted and has two values."""

SOURCES: Tuple[MakeSource, ...] = (ib.Bytes, netdev.Bytes)
"""Who counts a port's bytes in files that are cheap to read, the best first. What the wire carries
(`phy_*`) is not among them: each look at it takes the driver a millisecond under the kernel's
network lock."""


class BurstParameters(NamedTuple):
    """What a console wants: `ports` by name, `hz` samples a second for `seconds`."""

    ports: List[str]
    seconds: float
    hz: float


def parse_burst(given: Dict[str, Any]) -> BurstParameters:
    """The value of the key `burst` of a control line. Raises BadAsk."""
    ports, seconds, hz = given.get("ports"), given.get("seconds"), given.get("hz")
    if not isinstance(ports, list) or not 1 <= len(ports) <= MOST_PORTS:
        raise BadRequest(f"ports must be a list of 1 to {MOST_PORTS} names")
    if not all(isinstance(name, str) for name in ports):
        raise BadRequest("ports must be names")
    return BurstParameters(
        ports,
        number_between("seconds", seconds, LEAST_SECONDS, MOST_SECONDS),
        number_between("hz", hz, LEAST_HZ, MOST_HZ),
    )


class BurstRunner:
    """Runs the bursts that are asked for."""

    def __init__(self, host: HostFS, sources: Sequence[MakeSource] = SOURCES) -> None:
        self._host = host
        self._sources = sources

    def run(self, given: Dict[str, Any], tell: Reply) -> None:
        """Sample as asked and tell what comes of it. Raises BadAsk."""
        ask = parse_burst(given)
        readers: List[Reader] = []
        try:
            readers, missing = self._open(ask)
            tell(
                {
                    "hz": ask.hz,
                    "seconds": ask.seconds,
                    "ports": [
                        _describe(source, item) for source, items in readers for item in items
                    ],
                    "missing": missing,
                }
            )
            if readers:
                _sample(ask, readers, tell)
        finally:
            for source, _ in readers:
                source.close()

    def _open(self, ask: BurstParameters) -> Tuple[List[Reader], Dict[str, str]]:
        """The readers of all ports, each port at its best source; and which have none."""
        left = set(ask.ports)
        readers: List[Reader] = []
        for make in self._sources:
            # One that lacks a value is left to the next source.
            trial = make(self._host, left)
            whole = {item.port for item in discover(trial).objects if len(item.metrics) == _VALUES}
            trial.close()
            if whole:
                names = {name for name in whole if name is not None}
                source = make(self._host, names)
                readers.append((source, discover(source).objects))
                left -= names
        return readers, dict.fromkeys(sorted(left), _NONE)


def _sample(ask: BurstParameters, readers: Sequence[Reader], tell: Reply) -> None:
    """Read at the pace that was asked for; a sample that is late is left out, not made up."""
    width = 1 + sum(_VALUES * len(items) for _, items in readers)
    most = max(1, _MOST_NUMBERS // width)
    samples: List[List[Optional[int]]] = []
    period_s = 1 / ask.hz
    start_s = time.monotonic()
    sent_s = start_s
    count = 0
    while True:
        now_s = time.monotonic()
        if now_s - start_s >= ask.seconds + period_s / 2:
            break
        samples.append(_read(readers))
        if len(samples) >= most or now_s - sent_s >= _LINE_S:
            tell({"samples": samples})
            samples, sent_s = [], now_s
        count = max(count + 1, int((time.monotonic() - start_s) / period_s) + 1)
        time.sleep(max(0.0, start_s + count * period_s - time.monotonic()))
    if samples:
        tell({"samples": samples})


def _read(readers: Sequence[Reader]) -> List[Optional[int]]:
    sample: List[Optional[int]] = [time.monotonic_ns()]
    for source, items in readers:
        faults: Faults = {}
        try:
            sample += source.read(faults)
        except Exception:
            sample += [None] * (_VALUES * len(items))
    return sample


def _describe(source: Source, item: Object) -> Dict[str, Any]:
    return {"port": item.port, "source": source.name, "metrics": list(item.metrics)}
