"""What was drawn, minute by minute: highest and mean, of every 10 s and of the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.snapshot import HEAT, Floats, Snapshot
from fabmon.recording.format import columns
from fabmon.recording.format.errors import Damaged

MINUTE_NS = 60_000_000_000
BIN_NS = 10_000_000_000
BINS = MINUTE_NS // BIN_NS

_ABSENT = 255
_FINE = 254


@dataclass(frozen=True, slots=True)
class Minute:
    """Columns of HEAT by port row; NaN where nothing was known.

    `most` and `mean` are [columns, ports] over the minute, to 0.4 %. `line_rate_bps` is [ports], at
    the minute's end. `rows` are the ports' rows by id, of the topology record before; empty where
    that is lost.
    """

    start_ns: int
    columns: tuple[str, ...]
    line_rate_bps: Floats
    most: Floats
    mean: Floats
    rows: Mapping[str, int]
    _tens: tuple[bytes, bytes]

    def most_10s(self) -> Floats:
        """[6, columns, ports] over 10 s each, to 1/254 of `most`. Raises Damaged."""
        return _unshare(columns.unpack_section(self._tens[0]), self.most)

    def mean_10s(self) -> Floats:
        """The same of the mean. Raises Damaged."""
        return _unshare(columns.unpack_section(self._tens[1]), self.most)


class MinuteBuilder:
    """Takes moments; gives the minutes that they fill, as payloads."""

    def __init__(self) -> None:
        self._start_ns = -1
        self._bin: list[Floats] = []
        self._bin_number = 0
        self._bins: dict[int, tuple[Floats, Floats]] = {}
        self._line_rate = np.empty(0, np.float32)

    def add(self, snapshot: Snapshot) -> tuple[int, bytes] | None:
        """Take a moment. The minute before it, start and payload, when it begins another."""
        start_ns = snapshot.time_ns // MINUTE_NS * MINUTE_NS
        number = (snapshot.time_ns - start_ns) // BIN_NS
        done = None
        if start_ns != self._start_ns:
            done = self.finish()
        elif number != self._bin_number:
            self._close_bin()
        self._start_ns, self._bin_number = start_ns, number
        self._bin.append(snapshot.heat)
        self._line_rate = snapshot.line_rate_bps
        return done

    def finish(self) -> tuple[int, bytes] | None:
        """The minute that has begun, as far as it goes; None when none has."""
        self._close_bin()
        if not self._bins:
            return None
        ports = len(self._line_rate)
        nothing = np.full((len(HEAT), ports), np.nan, np.float32)
        most_10s = np.stack([self._bins.get(n, (nothing, nothing))[0] for n in range(BINS)])
        mean_10s = np.stack([self._bins.get(n, (nothing, nothing))[1] for n in range(BINS)])
        most = to_bfloat16(np.fmax.reduce(most_10s, axis=0))
        payload = columns.join_sections(
            [
                columns.pack_section(",".join(HEAT).encode()),
                columns.pack_section(self._line_rate.astype("<f4")),
                columns.pack_section(_turned(most)),
                columns.pack_section(_turned(to_bfloat16(_mean(list(mean_10s))))),
                columns.pack_section(_share(most_10s, from_bfloat16(most))),
                columns.pack_section(_share(mean_10s, from_bfloat16(most))),
            ]
        )
        self._bins = {}
        return self._start_ns, payload

    def _close_bin(self) -> None:
        """Sum up the moments of 10 s; those from before a port came are narrower."""
        if not self._bin:
            return
        ports = self._bin[-1].shape[1]
        heat = [_widened(each, ports) for each in self._bin]
        self._bins = {
            n: (_widened(a, ports), _widened(b, ports)) for n, (a, b) in self._bins.items()
        }
        self._bins[self._bin_number] = _most(heat), _mean(heat)
        self._bin = []


def _widened(heat: Floats, ports: int) -> Floats:
    new = ports - heat.shape[1]
    return np.pad(heat, ((0, 0), (0, new)), constant_values=np.nan) if new else heat


def _most(heat: Sequence[Floats]) -> Floats:
    """The highest of what is known; NaN where nothing is."""
    most = heat[0].copy()
    for each in heat[1:]:
        np.fmax(most, each, out=most)
    return most


def _mean(heat: Sequence[Floats]) -> Floats:
    """Of what is known; NaN where nothing is. One after the other, in memory that stays at hand."""
    total, count = np.zeros(heat[0].shape), np.zeros(heat[0].shape, np.int32)
    for each in heat:
        known = each == each  # NaN is not
        np.add(total, each, out=total, where=known)
        count += known
    with np.errstate(invalid="ignore"):
        mean: Floats = (total / count).astype(np.float32)
    return mean


def decode_minute(payload: bytes, start_ns: int, rows: Mapping[str, int]) -> Minute:
    """The reverse. Raises Damaged."""
    try:
        sections = columns.split_sections(payload)[:6]
        names, rate, most, mean = map(columns.unpack_section, sections[:4])
        most_10s, mean_10s = sections[4:]
        heads = tuple(names.decode().split(","))
        line_rate = np.frombuffer(rate, "<f4").astype(np.float32)
        shape = (len(heads), len(line_rate))
        peak = from_bfloat16(_unturned(most).reshape(shape))
        return Minute(
            start_ns,
            heads,
            line_rate,
            peak,
            from_bfloat16(_unturned(mean).reshape(shape)),
            rows,
            (most_10s, mean_10s),
        )
    except ValueError as error:
        raise Damaged(f"a minute that does not decode: {error}") from None


def to_bfloat16(values: NDArray[np.floating]) -> NDArray[np.uint16]:
    """The upper half of each float32, rounded: 8 bits of it are exact, NaN stays."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = np.where(np.isnan(values), bits, bits + np.uint32(0x8000))
    return (rounded >> np.uint32(16)).astype(np.uint16)


def from_bfloat16(halves: NDArray[np.uint16]) -> Floats:
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
    if len(data) % max(peak.size, 1):
        raise Damaged("a minute that does not decode: parts of it are missing")
    shares = np.frombuffer(data, np.uint8).reshape(-1, *peak.shape)
    values = shares.astype(np.float32) / np.float32(_FINE) * peak
    return np.where(shares == _ABSENT, np.float32(np.nan), values)
