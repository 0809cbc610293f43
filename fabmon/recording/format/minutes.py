"""Minute frames: highest and mean of what the screen draws, for each minute and each 10 s of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.port_arrays import grown
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.recording.format.errors import Damaged
from fabmon.recording.format.sections import (
    byte_planes,
    from_byte_planes,
    join_sections,
    pack_section,
    split_sections,
    unpack_section,
)

MINUTE_NS = 60_000_000_000
BIN_NS = 10_000_000_000
BINS = MINUTE_NS // BIN_NS

_MAX_NAMES_BYTES = 1 << 12
_MAX_PORTS = 1 << 20
"""Limits of a minute that is read."""

_ABSENT = 255
_SHARES = 254
"""A value of 10 s is stored as a whole number of shares of the minute's highest value."""


@dataclass(frozen=True, slots=True)
class Minute:
    """Columns of HEAT by port row, in the units of HEAT; NaN where nothing was known.

    `highest` and `mean` are [columns, ports] over the minute, exact to 0.4 %. `line_rate_bps` is
    [ports] at the end of the minute. `rows` are the ports' rows by id, from the topology record
    before; empty where that is lost.
    """

    start_ns: int
    columns: tuple[str, ...]
    line_rate_bps: Floats
    highest: Floats
    mean: Floats
    rows: Mapping[str, int]
    _tens: tuple[bytes, bytes]

    def highest_10s(self) -> Floats:
        """[6, columns, ports] over 10 s each, exact to 1/254 of `highest`. Raises Damaged."""
        return _from_shares(self._tens[0], self.highest)

    def mean_10s(self) -> Floats:
        """The mean, in the same shape. Raises Damaged."""
        return _from_shares(self._tens[1], self.highest)


class MinuteBuilder:
    """Takes snapshots and returns the minutes that they fill, as payloads of frames."""

    def __init__(self) -> None:
        self._start_ns = -1
        self._bin: list[Floats] = []
        self._bin_number = 0
        self._bins: dict[int, tuple[Floats, Floats]] = {}
        self._line_rate_bps = np.empty(0, np.float32)

    def add(self, snapshot: Snapshot) -> tuple[int, bytes] | None:
        """Add a snapshot. Returns start and payload of the minute before when it begins another."""
        start_ns = snapshot.time_ns // MINUTE_NS * MINUTE_NS
        number = (snapshot.time_ns - start_ns) // BIN_NS
        done = None
        if start_ns != self._start_ns:
            done = self.finish()
        elif number != self._bin_number:
            self._close_bin()
        self._start_ns, self._bin_number = start_ns, number
        self._bin.append(snapshot.heat)
        self._line_rate_bps = snapshot.line_rate_bps
        return done

    def finish(self) -> tuple[int, bytes] | None:
        """Start and payload of the current minute so far; None where it has no snapshot."""
        self._close_bin()
        if not self._bins:
            return None
        ports = len(self._line_rate_bps)
        unknown = np.full((len(HEAT), ports), np.nan, np.float32)
        bins = [self._bins.get(number, (unknown, unknown)) for number in range(BINS)]
        highest_10s, mean_10s = (np.stack(each) for each in zip(*bins, strict=True))
        highest = to_bfloat16(np.fmax.reduce(highest_10s, axis=0))
        self._bins = {}
        payload = join_sections(
            [
                pack_section(",".join(HEAT).encode()),
                pack_section(self._line_rate_bps.astype("<f4")),
                pack_section(byte_planes(highest)),
                pack_section(byte_planes(to_bfloat16(_mean(list(mean_10s))))),
                pack_section(_to_shares(highest_10s, from_bfloat16(highest))),
                pack_section(_to_shares(mean_10s, from_bfloat16(highest))),
            ]
        )
        return self._start_ns, payload

    def _close_bin(self) -> None:
        """Combine the snapshots of 10 s; those from before a port was found have fewer ports."""
        if not self._bin:
            return
        ports = self._bin[-1].shape[1]
        heat = [grown(each, ports, np.nan) for each in self._bin]
        for number, (high, mean) in self._bins.items():
            self._bins[number] = grown(high, ports, np.nan), grown(mean, ports, np.nan)
        self._bins[self._bin_number] = _highest(heat), _mean(heat)
        self._bin = []


def _highest(heat: Sequence[Floats]) -> Floats:
    """The highest of the known values; NaN where none is known."""
    highest = heat[0].copy()
    for each in heat[1:]:
        np.fmax(highest, each, out=highest)
    return highest


def _mean(heat: Sequence[Floats]) -> Floats:
    """The mean of the known values; NaN where none is known. Adds one by one to reuse memory."""
    total, count = np.zeros(heat[0].shape), np.zeros(heat[0].shape, np.int32)
    for each in heat:
        known = each == each  # False for NaN
        np.add(total, each, out=total, where=known)
        count += known
    with np.errstate(invalid="ignore"):
        mean: Floats = (total / count).astype(np.float32)
    return mean


def decode_minute(payload: bytes, start_ns: int, rows: Mapping[str, int]) -> Minute:
    """The minute of a frame, whose ports have some `rows`. Raises Damaged."""
    try:
        sections = split_sections(payload)[:6]
        names, rates, highest, mean, highest_10s, mean_10s = sections
        columns = tuple(unpack_section(names, max_bytes=_MAX_NAMES_BYTES).decode().split(","))
        line_rate_bps = np.frombuffer(unpack_section(rates, max_bytes=4 * _MAX_PORTS), "<f4")
        shape, half = (len(columns), len(line_rate_bps)), np.dtype("<u2")
        if shape[0] * shape[1] > len(HEAT) * _MAX_PORTS:
            raise Damaged(f"a minute claims {shape[0]} x {shape[1]} values")
        size = half.itemsize * shape[0] * shape[1]
        return Minute(
            start_ns,
            columns,
            line_rate_bps.astype(np.float32),
            from_bfloat16(from_byte_planes(unpack_section(highest, size), half).reshape(shape)),
            from_bfloat16(from_byte_planes(unpack_section(mean, size), half).reshape(shape)),
            rows,
            (highest_10s, mean_10s),
        )
    except ValueError as error:
        raise Damaged(f"a minute does not decode: {error}") from None


def to_bfloat16(values: NDArray[np.floating]) -> NDArray[np.uint16]:
    """The upper half of each float32, rounded: 8 bits of precision; NaN stays NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = np.where(np.isnan(values), bits, bits + np.uint32(0x8000))
    return (rounded >> np.uint32(16)).astype("<u2")


def from_bfloat16(halves: NDArray[np.uint16]) -> Floats:
    """The reverse of `to_bfloat16`."""
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _to_shares(values: NDArray[np.floating], highest: Floats) -> bytes:
    """Values as shares of the highest, u8 0 to 254; 255 for what is absent."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(highest > 0, values / highest, 0)
    share = np.rint(np.clip(share, 0, 1) * _SHARES)
    absent = np.isnan(values) | np.isnan(highest)
    return np.where(absent, _ABSENT, share).astype(np.uint8).tobytes()


def _from_shares(section: bytes, highest: Floats) -> Floats:
    data = unpack_section(section, BINS * highest.size)
    shares = np.frombuffer(data, np.uint8).reshape(BINS, *highest.shape)
    values = shares.astype(np.float32) / np.float32(_SHARES) * highest
    return np.where(shares == _ABSENT, np.float32(np.nan), values)
