"""Rates as Parquet. The only module that imports pyarrow, which is optional."""

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
_TEXT = pa.dictionary(pa.int32(), pa.string())

SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", "UTC")),
        *((name, pa.int16() if name == "rail" else _TEXT) for name in NAMES),
        ("state", _TEXT),
        *((name, pa.float32()) for name in NUMBERS),
        ("doubt", _TEXT),
    ]
)


class ParquetRates:
    """Writes rates as Parquet, compressed with zstd; absent values are null."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._table = RateTable()
        self._writer = pq.ParquetWriter(stream, SCHEMA, compression="zstd")
        self._pending: list[Rates] = []
        self._rows = 0

    def accept(self, snapshot: Snapshot, wanted: Mask | None) -> None:
        """Add the rows of a tick; they are written in groups. Raises OSError."""
        rates = self._table.of(snapshot, wanted)
        self._pending.append(rates)
        self._rows += len(rates.names)
        if self._rows >= _GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        """Write the remaining rows and complete the file."""
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        pending, self._pending, self._rows = self._pending, [], 0
        times = np.repeat(
            [each.time_ns // 1000 for each in pending], [len(r.names) for r in pending]
        )
        columns = list(zip(*(names for each in pending for names in each.names), strict=True))
        numbers = np.concatenate([each.numbers for each in pending], axis=1)
        arrays = [pa.array(times, SCHEMA.field("time").type)]
        for name, words in zip(NAMES, columns, strict=True):
            arrays.append(_rails(words) if name == "rail" else _texts(words))
        arrays.append(_texts([state for each in pending for state in each.states]))
        arrays += [pa.array(row, pa.float32(), from_pandas=True) for row in numbers]
        arrays.append(_texts([doubt for each in pending for doubt in each.doubts]))
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA))


def _texts(words: Sequence[str | None]) -> pa.Array:
    return pa.array(words, pa.string()).dictionary_encode()


def _rails(words: Sequence[str | None]) -> pa.Array:
    return pa.array([None if word is None else int(word) for word in words], pa.int16())
