"""Parts of bursts, put together: the last one of each port."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fabmon.fabric.snapshot import WAYS, BurstSamples
from fabmon.fabric.wire.messages import Answer, Burst

_MOST_SAMPLES = 8000
"""Of one burst: 60 s at 100 Hz, and room."""

_MOST_PORTS = 16
_WRAP = 1 << 64

Sample = tuple[int | None, ...]


class BurstAssembler:
    """`accept` parts as they come; `of_ports` are the samples by node and port."""

    def __init__(self) -> None:
        self.of_ports: dict[tuple[str, str], BurstSamples] = {}
        self._begun: dict[str, Burst] = {}
        self._samples: dict[str, list[Sample]] = {}
        self._began_ns: dict[str, int] = {}

    def accept(self, parts: Iterable[tuple[str, Answer]], time_ns: int) -> None:
        """Take the answers of a tick, of which some are parts of bursts."""
        for node, part in parts:
            if not isinstance(part, Burst):
                continue
            begun = self._begun.get(node)
            if begun is None or part.id != begun.id:
                begun = self._begun[node] = part
                self._samples[node], self._began_ns[node] = [], time_ns
            width = 1 + len(WAYS) * len(begun.ports)
            samples = self._samples[node]
            room = _MOST_SAMPLES - len(samples)
            samples += [sample for sample in part.samples if len(sample) == width][:room]
            self._tell(node, begun, part)

    def _tell(self, node: str, begun: Burst, part: Burst) -> None:
        samples = [sample for sample in self._samples[node] if sample[0] is not None]
        clock = [sample[0] or 0 for sample in samples]
        at_s = np.array([(each - clock[0]) / 1e9 for each in clock]) if clock else np.empty(0)
        for number, port in enumerate(begun.ports[:_MOST_PORTS]):
            first = 1 + len(WAYS) * number
            columns = [[sample[first + way] for sample in samples] for way in range(len(WAYS))]
            self.of_ports[node, port.port] = BurstSamples(
                self._began_ns[node],
                begun.hz,
                begun.seconds,
                port.source,
                at_s,
                np.array([_counted(column) for column in columns]).reshape(len(WAYS), len(at_s)),
                part.done,
                part.error,
            )
        for name, reason in list(begun.missing.items())[:_MOST_PORTS]:
            nothing = np.empty((len(WAYS), 0))
            self.of_ports[node, name] = BurstSamples(
                self._began_ns[node],
                begun.hz,
                begun.seconds,
                "",
                np.empty(0),
                nothing,
                True,
                reason,
            )


def _counted(values: list[int | None]) -> list[float]:
    """Bytes since the first value; exact, since they are subtracted before they are floats."""
    first = next((value for value in values if value is not None), 0)
    return [float("nan") if value is None else float((value - first) % _WRAP) for value in values]
