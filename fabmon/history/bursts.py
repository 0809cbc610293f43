"""Bursts of fast samples, assembled from the parts that nodes send: the last burst of each port."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fabmon.fabric.snapshot import WAYS, BurstSamples
from fabmon.fabric.wire.messages import Answer, Burst

_MAX_SAMPLES = 8000
"""Samples kept of one burst: 60 s at 100 Hz, with a margin."""

_MAX_PORTS = 16
_WRAP = 1 << 64

Sample = tuple[int | None, ...]


class BurstAssembler:
    """`accept` takes parts as they arrive; `of_ports` are the samples by node and port."""

    def __init__(self) -> None:
        self.of_ports: dict[tuple[str, str], BurstSamples] = {}
        self._first: dict[str, Burst] = {}
        self._samples: dict[str, list[Sample]] = {}
        self._began_ns: dict[str, int] = {}

    def accept(self, answers: Iterable[tuple[str, Answer]], time_ns: int) -> None:
        """Take the answers of a tick, some of which are parts of bursts."""
        for node, part in answers:
            if not isinstance(part, Burst):
                continue
            first = self._first.get(node)
            if first is None or part.id != first.id:
                first = self._first[node] = part
                self._samples[node], self._began_ns[node] = [], time_ns
            width = 1 + len(WAYS) * len(first.ports)
            samples = self._samples[node]
            room = _MAX_SAMPLES - len(samples)
            samples += [sample for sample in part.samples if len(sample) == width][:room]
            self._update(node, first, part)

    def _update(self, node: str, first: Burst, part: Burst) -> None:
        """Replace the samples of a burst's ports after a part of it arrived."""
        samples = [sample for sample in self._samples[node] if sample[0] is not None]
        clock_ns = [sample[0] or 0 for sample in samples]
        at_s = np.array([(each - clock_ns[0]) / 1e9 for each in clock_ns])
        for number, port in enumerate(first.ports[:_MAX_PORTS]):
            column = 1 + len(WAYS) * number
            counts = [
                _bytes_since_first([sample[column + way] for sample in samples])
                for way in range(len(WAYS))
            ]
            self.of_ports[node, port.port] = BurstSamples(
                self._began_ns[node],
                first.hz,
                first.seconds,
                port.source,
                at_s,
                np.array(counts).reshape(len(WAYS), len(at_s)),
                part.done,
                part.error,
            )
        for name, reason in list(first.missing.items())[:_MAX_PORTS]:
            self.of_ports[node, name] = BurstSamples(
                self._began_ns[node],
                first.hz,
                first.seconds,
                "",
                np.empty(0),
                np.empty((len(WAYS), 0)),
                True,
                reason,
            )


def _bytes_since_first(values: list[int | None]) -> list[float]:
    """Bytes since the first known value; NaN where unknown.

    Exact: integers are subtracted before they become floats.
    """
    first = next((value for value in values if value is not None), 0)
    return [float("nan") if value is None else float((value - first) % _WRAP) for value in values]
