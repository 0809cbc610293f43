"""Values out of SONiC's hashes: which metrics a hash has, and what its texts mean."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Tuple

from collectors.sonicdb import Row
from collectors.source import Faults

Spellings = Tuple[Tuple[str, ...], ...]
"""Of a metric, the best first; each is a sum of fields."""

Sum = Tuple[str, ...]
"""Fields of a hash that make one value together."""


class Hash(NamedTuple):
    """A hash that is read, and the metrics that it has: each a sum of fields."""

    key: str
    fields: Tuple[str, ...]
    metrics: Dict[str, Sum]


def counters_key(oid: str) -> str:
    """Where an object's counters are."""
    return f"COUNTERS:{oid}"


def hash_of(key: str, row: Row, table: Dict[str, Spellings]) -> Hash:
    """The metrics of a table that a hash has, each in its best spelling."""
    metrics: Dict[str, Sum] = {}
    for metric, spellings in table.items():
        for fields in spellings:
            if all(number(row.get(field)) is not None for field in fields):
                metrics[metric] = fields
                break
    fields = tuple(dict.fromkeys(field for each in metrics.values() for field in each))
    return Hash(key, fields, metrics)


def total(found: Dict[str, Optional[str]], fields: Sum) -> Optional[int]:
    """The sum of some fields; None unless all of them are numbers."""
    together = 0
    for field in fields:
        value = number(found[field])
        if value is None:
            return None
        together += value
    return together


def put(
    values: List[Optional[int]], faults: Faults, value: Optional[int], *said: Optional[str]
) -> None:
    """Append a value; `said` are the texts behind it: one that is there and no number (`N/A`) is
    not supported, one that is gone is absent."""
    if value is None:
        faults[len(values)] = "absent" if None in said or not said else "unsupported"
    values.append(value)


def number(text: Optional[str]) -> Optional[int]:
    """A whole number that is not negative; None for `N/A` and what is not there."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
