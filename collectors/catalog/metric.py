"""The type of a row of the catalog, and the kinds that a counter can be."""

from __future__ import annotations

from typing import Iterator, NamedTuple, Tuple

WRAP64 = "wrap64"
WRAP32 = "wrap32"
GAUGE = "gauge"


class Metric(NamedTuple):
    """One row of the catalog.

    `unit` is the unit of the value; a rate is that per second. `kind` is `wrap64`, `wrap32`,
    `gauge`, or `sat` and the bits of a counter that sticks at its maximum, as IBTA's do.
    `direction` is `tx`, `rx` or empty, as seen from the port. `topic` is `traffic` (bytes),
    `packets`, `pause`, `congestion`, `error`, `drop`, `corrected` (by FEC: a good link has such
    errors too), `state` or `probe`. `source` is where the counter is documented.
    """

    name: str
    unit: str
    kind: str
    direction: str
    topic: str
    meaning: str
    source: str


def entries(table: str) -> Iterator[Tuple[str, str]]:
    """What is before and after `: ` in the lines of a text.

    An indented line continues the one before it; lines that begin with # are comments.
    """
    for line in table.strip().replace("\n    ", " ").splitlines():
        if not line.startswith("#"):
            head, _, rest = line.partition(": ")
            yield head, rest


def rows(table: str, source: str) -> Iterator[Metric]:
    """The metrics of entries `name unit kind direction topic: meaning`, `-` for no direction."""
    for head, meaning in entries(table):
        name, unit, kind, direction, topic = head.split()
        direction = "" if direction == "-" else direction
        yield Metric(name, unit, kind, direction, topic, meaning, source)
