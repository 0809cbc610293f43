"""The table that amdgpu hands out as `gpu_metrics`: what it says of xGMI, the links between GPUs.

The layouts are those of Linux drivers/gpu/drm/amd/include/kgd_pp_interface.h, in the machine's own
byte order. Revisions 1.4 to 1.8 have fixed places; 1.9 is a list of attributes that name themselves
(packed, as ROCm's amdsmi reads it). Older ones, and those of integrated GPUs, have no xGMI.
"""

from __future__ import annotations

import struct
from typing import Dict, List, NamedTuple, Optional, Tuple

from collectors.source import Failed, Unsupported

LINKS = 8
"""NUM_XGMI_LINKS."""

_HEADER = struct.Struct("=HBB")
"""metrics_table_header: size, format revision, content revision."""

_BYTES_OF_KB = 1024
_GBPS = 10**9
_NONE16, _NONE64 = 2**16 - 1, 2**64 - 1
"""The driver fills the table with ones first: what stays so is not there."""


class _Layout(NamedTuple):
    """Places in octets: width and speed (u16 each), data read and written (u64 of each link), and
    the links' status (u16 of each)."""

    width: int
    data: int
    status: Optional[int]


_LAYOUTS: Dict[Tuple[int, int], _Layout] = {
    (1, 4): _Layout(52, 104, None),
    (1, 5): _Layout(116, 176, None),
    (1, 6): _Layout(64, 128, None),
    (1, 7): _Layout(72, 136, 264),
    (1, 8): _Layout(72, 136, 264),
}
_WITHOUT_XGMI = {(1, content) for content in range(4)}
_ATTRIBUTES = (1, 9)

_WIDTH, _SPEED, _READ, _WRITTEN, _STATUS = 18, 19, 29, 30, 31
"""AMDGPU_METRICS_ATTR_ID_XGMI_*."""
_TENTHS = 7
"""AMDGPU_METRICS_UNIT_SPEED_2: a speed in 0.1 GT/s."""
_TYPES = "BbHhIiQq"
"""AMDGPU_METRICS_TYPE_*: unsigned and signed, of 8, 16, 32 and 64 bits."""


class Xgmi(NamedTuple):
    """The xGMI links of one GPU, by their number; None for what is not there.

    `read_bytes` is what the GPU fetched over a link, `written_bytes` what it sent, since the driver
    loaded. `speed_bps` is of one link in one direction. `up` is not told by the older revisions.
    """

    revision: str
    lanes: Optional[int]
    speed_bps: Optional[int]
    read_bytes: Tuple[Optional[int], ...]
    written_bytes: Tuple[Optional[int], ...]
    up: Tuple[Optional[bool], ...]


def xgmi_of(table: bytes) -> Xgmi:
    """What a table says. Raises Unsupported with its revision, Failed when it is cut short."""
    if len(table) < _HEADER.size:
        raise Failed(f"gpu_metrics of {len(table)} bytes has no header")
    _, *numbers = _HEADER.unpack_from(table)
    revision = (numbers[0], numbers[1])
    said = f"gpu_metrics v{revision[0]}.{revision[1]}"
    try:
        if revision == _ATTRIBUTES:
            return _from_attributes(said, table)
        layout = _LAYOUTS.get(revision)
        if layout is not None:
            return _from_layout(said, table, layout)
    except struct.error as error:
        raise Failed(f"{said} of {len(table)} bytes is cut short") from error
    if revision in _WITHOUT_XGMI or revision[0] in (2, 3):
        raise Unsupported(f"{said} has no xGMI counters")
    raise Unsupported(f"{said} is not known")


def _from_layout(said: str, table: bytes, layout: _Layout) -> Xgmi:
    width, speed = struct.unpack_from("=HH", table, layout.width)
    data = struct.unpack_from(f"={2 * LINKS}Q", table, layout.data)
    status: Tuple[int, ...] = (_NONE16,) * LINKS
    if layout.status is not None:
        status = struct.unpack_from(f"={LINKS}H", table, layout.status)
    return _xgmi(said, width, speed * _GBPS, data[:LINKS], data[LINKS:], status)


def _from_attributes(said: str, table: bytes) -> Xgmi:
    (count,) = struct.unpack_from("=I", table, _HEADER.size)
    place = _HEADER.size + 4
    found: Dict[int, Tuple[int, ...]] = {}
    speed_unit_bps = _GBPS
    for _ in range(count):
        (encoding,) = struct.unpack_from("=Q", table, place)
        instances, name = encoding & 0x3FF, encoding >> 10 & 0x3FF
        kind, unit = encoding >> 20 & 0xF, encoding >> 24 & 0xFF
        if kind >= len(_TYPES) or not instances:
            raise Failed(f"{said} has {instances} values of type {kind}, which is none")
        values = struct.Struct(f"={instances}{_TYPES[kind]}")
        found[name] = values.unpack_from(table, place + 8)
        place += 8 + values.size
        if name == _SPEED and unit == _TENTHS:
            speed_unit_bps = _GBPS // 10
    nothing = (_NONE64,) * LINKS
    return _xgmi(
        said,
        found.get(_WIDTH, (_NONE16,))[0],
        found.get(_SPEED, (_NONE16,))[0] * speed_unit_bps,
        (*found.get(_READ, ()), *nothing)[:LINKS],
        (*found.get(_WRITTEN, ()), *nothing)[:LINKS],
        (*found.get(_STATUS, ()), *nothing)[:LINKS],
    )


def _xgmi(
    said: str,
    width: int,
    lane_bps: int,
    read: Tuple[int, ...],
    written: Tuple[int, ...],
    status: Tuple[int, ...],
) -> Xgmi:
    lanes = width if 0 < width < _NONE16 else None
    known = lanes is not None and 0 < lane_bps < _NONE16 * _GBPS // 10
    return Xgmi(
        said,
        lanes,
        width * lane_bps if known else None,
        _bytes(read),
        _bytes(written),
        tuple(None if value >= _NONE16 else value == 1 for value in status),
    )


def _bytes(values: Tuple[int, ...]) -> Tuple[Optional[int], ...]:
    found: List[Optional[int]] = []
    for value in values:
        found.append(None if value == _NONE64 else value * _BYTES_OF_KB & _NONE64)
    return tuple(found)
