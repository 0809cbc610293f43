"""Rates as Parquet, by pyarrow: the only module that imports it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fabmon.fabric.filter import Mask
from fabmon.fabric.snapshot import Snapshot
from fabmon.report.rates import NAMES, NUMBERS, Rates, RateTable

_GROUP_ROWS = 1 << 17
_WORD = pa.dictionary(pa.int32(), pa.string())

SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", "UTC")),
        *((name, pa.int16() if name == "rail" else _WORD) for name in NAMES),
        ("state", _WORD),
        *((name, pa.float32()) for name in NUMBERS),
    ]
)


class ParquetRates:
    """Rates as Parquet, zstd; what is absent is null."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._table = RateTable()
        self._writer = pq.ParquetWriter(stream, SCHEMA, compression="zstd")
        self._held: list[Rates] = []
        self._rows = 0

    def accept(self, snapshot: Snapshot, wanted: Mask | None) -> None:
        """Add the rows of a tick. Raises OSError."""
        rates = self._table.of(snapshot, wanted)
        self._held.append(rates)
        self._rows += len(rates.names)
        if self._rows >= _GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        """Write what is left, and the end that makes it whole."""
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        held, self._held, self._rows = self._held, [], 0
        times = np.repeat([each.time_ns // 1000 for each in held], [len(r.names) for r in held])
        columns = list(zip(*(names for each in held for names in each.names), strict=True))
        numbers = np.concatenate([each.numbers for each in held], axis=1)
        arrays = [pa.array(times, SCHEMA.field("time").type)]
        for name, words in zip(NAMES, columns, strict=True):
            arrays.append(_rails(words) if name == "rail" else _words(words))
        arrays.append(_words([state for each in held for state in each.states]))
        arrays += [pa.array(row, pa.float32(), from_pandas=True) for row in numbers]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA))


def _words(words: Sequence[str | None]) -> pa.Array:
    return pa.array(words, pa.string()).dictionary_encode()


def _rails(words: Sequence[str | None]) -> pa.Array:
    return pa.array([None if word is None else int(word) for word in words], pa.int16())
