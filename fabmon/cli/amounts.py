"""Amounts as people write them: `1h`, `64MB`, and moments of a recording: `14:03`, `-10m`."""

from __future__ import annotations

import click

from fabmon.recording.reading.time_parsing import parse_amount as amount_of
from fabmon.recording.reading.time_parsing import parse_seconds as parse_seconds
from fabmon.recording.reading.time_parsing import parse_time as parse_time

_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
          "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}  # fmt: skip


def size(text: str) -> int | None:
    """`64MB`, `1GB`, `512KiB` in bytes; None for anything else."""
    amount = amount_of(text, _BYTES)
    return None if amount is None else int(amount)


class Seconds(click.ParamType[float]):
    """An option that is a time: `90s`, `1h`."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds, more than none."""
        found = float(value) if isinstance(value, (int, float)) else parse_seconds(str(value))
        if not found:
            self.fail(f"{value!r}: a time such as 90s, 15m, 1h or 7d", param, ctx)
        return found
