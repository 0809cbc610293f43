"""What was drawn, minute by minute: highest and mean, of every 10 s and of the whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.moment import HEAT, Floats, Moment
from fabmon.recording import columns
from fabmon.recording.errors import Damaged

MINUTE_NS = 60_000_000_000
BIN_NS = 10_000_000_000
BINS = MINUTE_NS // BIN_NS

_ABSENT = 255
_FINE = 254


@dataclass(frozen=True, slots=True)
class Minute:
    """Columns of HEAT by port row; NaN where nothing was known.

    `most` and `mean` are [columns, ports] over the minute, to 0.4 %; `most_10s` and `mean_10s`
    [6, columns, ports], to 1/254 of `most`. `line_rate_bps` is [ports], at the minute's end.
    Rows are those of the topology record before.
    """

    start_ns: int
    columns: tuple[str, ...]
    line_rate_bps: Floats
    most: Floats
    mean: Floats
    most_10s: Floats
    mean_10s: Floats


class MinuteMaker:
    """Takes moments; gives the minutes that they fill, as payloads."""

    def __init__(self) -> None:
        self._start_ns = -1
        self._bin = -1
        self._most = np.empty((BINS, len(HEAT), 0), np.float32)
        self._sum = self._most.copy()
        self._count = np.empty((BINS, len(HEAT), 0), np.uint16)
        self._line_rate = np.empty(0, np.float32)

    def add(self, moment: Moment) -> tuple[int, bytes] | None:
        """Take a moment. The minute before it, start and payload, when it begins another."""
        start_ns = moment.time_ns // MINUTE_NS * MINUTE_NS
        done = self.finish() if start_ns != self._start_ns else None
        self._start_ns = start_ns
        self._make_room(moment.heat.shape[1])
        place = (moment.time_ns - start_ns) // BIN_NS
        known = ~np.isnan(moment.heat)
        np.fmax(self._most[place], moment.heat, out=self._most[place])
        np.add(self._sum[place], moment.heat, out=self._sum[place], where=known)
        self._count[place] += known
        self._line_rate = moment.line_rate_bps
        return done

    def finish(self) -> tuple[int, bytes] | None:
        """The minute that has begun, as far as it goes; None when none has."""
        if self._start_ns < 0 or not self._count.any():
            return None
        count = self._count.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.where(count > 0, self._sum.sum(axis=0) / count, np.nan)
            mean_10s = np.where(self._count > 0, self._sum / self._count, np.nan)
        most = short(np.fmax.reduce(self._most, axis=0))
        peak = unshort(most)
        payload = columns.joined(
            [
                columns.pack(",".join(HEAT).encode()),
                columns.pack(self._line_rate.astype("<f4")),
                columns.pack(_turned(most)),
                columns.pack(_turned(short(mean))),
                columns.pack(_share(self._most, peak)),
                columns.pack(_share(mean_10s, peak)),
            ]
        )
        start_ns = self._start_ns
        self._most = np.full_like(self._most, np.nan)
        self._sum = np.zeros_like(self._sum)
        self._count = np.zeros_like(self._count)
        self._start_ns = -1
        return start_ns, payload

    def _make_room(self, ports: int) -> None:
        new = ports - self._most.shape[2]
        if new:
            pad = ((0, 0), (0, 0), (0, new))
            self._most = np.pad(self._most, pad, constant_values=np.nan)
            self._sum = np.pad(self._sum, pad)
            self._count = np.pad(self._count, pad)


def decode(payload: bytes, start_ns: int) -> Minute:
    """The reverse. Raises Damaged."""
    try:
        names, rate, most, mean, most_10s, mean_10s = map(
            columns.unpack, columns.split(payload)[:6]
        )
        heads = tuple(names.decode().split(","))
        line_rate = np.frombuffer(rate, "<f4").astype(np.float32)
        shape = (len(heads), len(line_rate))
        peak = unshort(_unturned(most).reshape(shape))
        return Minute(
            start_ns,
            heads,
            line_rate,
            peak,
            unshort(_unturned(mean).reshape(shape)),
            _unshare(most_10s, peak),
            _unshare(mean_10s, peak),
        )
    except ValueError as error:
        raise Damaged(f"a minute that does not decode: {error}") from None


def short(values: NDArray[np.floating]) -> NDArray[np.uint16]:
    """The upper half of each float32, rounded: 8 bits of it are exact, NaN stays."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = np.where(np.isnan(values), bits, bits + np.uint32(0x8000))
    return (rounded >> np.uint32(16)).astype(np.uint16)


def unshort(halves: NDArray[np.uint16]) -> Floats:
    """The reverse of `short`."""
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _turned(halves: NDArray[np.uint16]) -> bytes:
    return halves.astype("<u2").view(np.uint8).reshape(-1, 2).T.tobytes()


def _unturned(data: bytes) -> NDArray[np.uint16]:
    planes = np.frombuffer(data, np.uint8).reshape(2, -1)
    return np.ascontiguousarray(planes.T).view("<u2").ravel()


def _share(values: NDArray[np.floating], peak: Floats) -> bytes:
    """Values as shares of a peak, 0 to 254; 255 for what is absent."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(peak > 0, values / peak, 0)
    share = np.rint(np.clip(share, 0, 1) * _FINE)
    return np.where(np.isnan(values) | np.isnan(peak), _ABSENT, share).astype(np.uint8).tobytes()


def _unshare(data: bytes, peak: Floats) -> Floats:
    shares = np.frombuffer(data, np.uint8).reshape(-1, *peak.shape)
    values = shares.astype(np.float32) / np.float32(_FINE) * peak
    return np.where(shares == _ABSENT, np.float32(np.nan), values)
