"""A burst: the bytes of a few ports, many times a second for a few seconds, beside the frames.

It has its own files and sends its samples about once a second. One burst runs at a time; its length
and rate are bounded below.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Container, Dict, List, NamedTuple, Optional, Sequence, Tuple

from collectors import clock
from collectors.hostfs import HostFS
from collectors.loop.requests import BadRequest, Reply, number_between
from collectors.loop.watchdog import discover
from collectors.source import Faults, Source
from collectors.sources import ib, netdev
from collectors.wire import Object

MAX_PORTS = 16
MIN_SECONDS, MAX_SECONDS = 0.1, 60.0
MIN_HZ, MAX_HZ = 1.0, 100.0

_MAX_NUMBERS = 4096
"""Numbers in a line: less than 100 kB of text."""

_LINE_S = 1.0
_VALUES = 2
_NO_COUNTER = "no byte counter that may be read so often"

MakeSource = Callable[[HostFS, Container[str]], Source]
Reader = Tuple[Source, List[Object]]
"""A source and its objects, every one of which was requested and has two values."""

SOURCES: Tuple[MakeSource, ...] = (ib.RdmaPortBytes, netdev.InterfaceBytes)
"""Sources that count a port's bytes in files that are cheap to read, the best first. The counters
of the wire (`phy_*`) are not among them: each look at it takes the driver a millisecond under the
kernel's network lock."""


class BurstParameters(NamedTuple):
    """A console's request: `ports` by name, `hz` samples a second for `seconds`."""

    ports: List[str]
    seconds: float
    hz: float


def parse_burst(given: Dict[str, Any]) -> BurstParameters:
    """Parse the value of the key `burst` of a control line. Raises BadRequest."""
    ports = given.get("ports")
    if not isinstance(ports, list) or not 1 <= len(ports) <= MAX_PORTS:
        raise BadRequest(f"ports must be a list of 1 to {MAX_PORTS} names")
    if not all(isinstance(name, str) for name in ports):
        raise BadRequest("ports must be names")
    return BurstParameters(
        ports,
        number_between("seconds", given.get("seconds"), MIN_SECONDS, MAX_SECONDS),
        number_between("hz", given.get("hz"), MIN_HZ, MAX_HZ),
    )


class BurstRunner:
    """Runs bursts on the ports of a host."""

    def __init__(self, host: HostFS, sources: Sequence[MakeSource] = SOURCES) -> None:
        self._host = host
        self._sources = sources

    def run(self, given: Dict[str, Any], reply: Reply) -> None:
        """Sample as requested and reply with the samples. Raises BadRequest."""
        parameters = parse_burst(given)
        readers: List[Reader] = []
        try:
            readers, missing = self._open(parameters.ports)
            described = [
                {"port": item.port, "source": source.name, "metrics": list(item.metrics)}
                for source, items in readers
                for item in items
            ]
            about = {"hz": parameters.hz, "seconds": parameters.seconds}
            reply({**about, "ports": described, "missing": missing})
            if readers:
                _sample(parameters, readers, reply)
        finally:
            for source, _ in readers:
                source.close()

    def _open(self, ports: Sequence[str]) -> Tuple[List[Reader], Dict[str, str]]:
        """The readers of all ports, each port at its best source; why other ports have none."""
        left = set(ports)
        readers: List[Reader] = []
        for make in self._sources:
            # A port that lacks a value here is left to the next source.
            trial = make(self._host, left)
            objects = discover(trial).objects
            trial.close()
            names = {item.port for item in objects if item.port and len(item.metrics) == _VALUES}
            if names:
                source = make(self._host, names)
                readers.append((source, discover(source).objects))
                left -= names
        return readers, dict.fromkeys(sorted(left), _NO_COUNTER)


def _sample(parameters: BurstParameters, readers: Sequence[Reader], reply: Reply) -> None:
    """Read at the requested rate; a sample that is late is left out, not made up."""
    width = 1 + sum(_VALUES * len(items) for _, items in readers)
    most = max(1, _MAX_NUMBERS // width)
    samples: List[List[Optional[int]]] = []
    period_s = 1 / parameters.hz
    start_s = time.monotonic()
    sent_s = start_s
    count = 0
    while True:
        now_s = time.monotonic()
        if now_s - start_s >= parameters.seconds + period_s / 2:
            break
        samples.append(_read(readers))
        if len(samples) >= most or now_s - sent_s >= _LINE_S:
            reply({"samples": samples})
            samples, sent_s = [], now_s
        count = max(count + 1, int((time.monotonic() - start_s) / period_s) + 1)
        time.sleep(max(0.0, start_s + count * period_s - time.monotonic()))
    if samples:
        reply({"samples": samples})


def _read(readers: Sequence[Reader]) -> List[Optional[int]]:
    """One sample: the monotonic clock, then two values per port, None where a read fails."""
    sample: List[Optional[int]] = [clock.monotonic_ns()]
    for source, items in readers:
        faults: Faults = {}
        try:
            sample += source.read(faults)
        except Exception:
            sample += [None] * (_VALUES * len(items))
    return sample
