"""The type of a row of the catalog, and the kinds that a counter can be."""

from __future__ import annotations

from typing import NamedTuple

WRAP64 = "wrap64"
WRAP32 = "wrap32"
GAUGE = "gauge"


def saturating(bits: int) -> str:
    """The kind of a counter of `bits` bits that sticks at its maximum, as IBTA port counters do."""
    return f"sat{bits}"


class Metric(NamedTuple):
    """One row of the catalog.

    `unit` is the unit of the value; a rate is that per second. `direction` is `tx`, `rx` or empty,
    as seen from the port. `topic` is `traffic` (bytes), `packets`, `pause`, `congestion`, `error`,
    `drop`, `corrected` (by FEC: a good link has such errors too), `state` or `probe`. `source` is
    where the counter is documented.
    """

    name: str
    unit: str
    kind: str
    direction: str
    topic: str
    meaning: str
    source: str
