"""xGMI links of AMD GPUs: bytes of every link and of each GPU as a whole, each tick.

They come from `gpu_metrics` of sysfs, one table per GPU that every account may read. Bytes that a
GPU read over a link were received (`xgmi_rx_bytes`), bytes that it wrote were sent
(`xgmi_tx_bytes`): the firmware counts where the request began. The firmware counts in KB, taken as
1,024 bytes. GPUs are numbered by PCI address, as amd-smi numbers them. A link without a counter in
the table has no object.

The layouts of the table are those of Linux drivers/gpu/drm/amd/include/kgd_pp_interface.h, in the
machine's own byte order. Revisions 1.4 to 1.8 have fixed offsets; 1.9 is a list of attributes that
name themselves (packed, as ROCm's amdsmi reads it). Older ones, and those of integrated GPUs, have
no xGMI.
"""

from __future__ import annotations

import re
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from collectors.hostfs import File, HostFS
from collectors.readers import device_facts, ports
from collectors.source import (
    MASK64,
    Failed,
    Faults,
    NoData,
    Source,
    SourceError,
    Unsupported,
    from_oserror,
)
from collectors.wire import Object

LINKS = 8
"""NUM_XGMI_LINKS."""

_HEADER = struct.Struct("=HBB")
"""metrics_table_header: size, format revision, content revision."""

_BYTES_OF_KB = 1024
_GBPS = 10**9
_NONE16, _NONE64 = 2**16 - 1, 2**64 - 1
"""The driver fills the table with ones first: a value that stays so does not exist."""


class _Layout(NamedTuple):
    """Offsets in octets of width and speed (u16 each), data read and written (u64 of each link),
    and the links' status (u16 of each; None where there is none)."""

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
    """The xGMI links of one GPU, by their number; None for a value that does not exist.

    `read_bytes` is what the GPU fetched over a link, `written_bytes` what it sent, since the driver
    loaded. `speed_bps` is of one link in one direction. Older revisions do not report `up`.
    """

    revision: str
    lanes: Optional[int]
    speed_bps: Optional[int]
    read_bytes: Tuple[Optional[int], ...]
    written_bytes: Tuple[Optional[int], ...]
    up: Tuple[Optional[bool], ...]


def xgmi_of(table: bytes) -> Xgmi:
    """The links in a table. Raises Unsupported with its revision, Failed when it is truncated."""
    if len(table) < _HEADER.size:
        raise Failed(f"gpu_metrics of {len(table)} bytes has no header")
    _, *numbers = _HEADER.unpack_from(table)
    revision = (numbers[0], numbers[1])
    revision_text = f"gpu_metrics v{revision[0]}.{revision[1]}"
    try:
        if revision == _ATTRIBUTES:
            return _from_attributes(revision_text, table)
        layout = _LAYOUTS.get(revision)
        if layout is not None:
            return _from_layout(revision_text, table, layout)
    except struct.error as error:
        raise Failed(f"{revision_text} of {len(table)} bytes is truncated") from error
    if revision in _WITHOUT_XGMI or revision[0] in (2, 3):
        raise Unsupported(f"{revision_text} has no xGMI counters")
    raise Unsupported(f"{revision_text} is not known")


def _from_layout(revision_text: str, table: bytes, layout: _Layout) -> Xgmi:
    width, speed = struct.unpack_from("=HH", table, layout.width)
    data = struct.unpack_from(f"={2 * LINKS}Q", table, layout.data)
    status: Tuple[int, ...] = (_NONE16,) * LINKS
    if layout.status is not None:
        status = struct.unpack_from(f"={LINKS}H", table, layout.status)
    return _xgmi(revision_text, width, speed * _GBPS, data[:LINKS], data[LINKS:], status)


def _from_attributes(revision_text: str, table: bytes) -> Xgmi:
    (count,) = struct.unpack_from("=I", table, _HEADER.size)
    place = _HEADER.size + 4
    found: Dict[int, Tuple[int, ...]] = {}
    speed_unit_bps = _GBPS
    for _ in range(count):
        (encoding,) = struct.unpack_from("=Q", table, place)
        instances, name = encoding & 0x3FF, encoding >> 10 & 0x3FF
        kind, unit = encoding >> 20 & 0xF, encoding >> 24 & 0xFF
        if kind >= len(_TYPES) or not instances:
            raise Failed(f"{revision_text} has {instances} values of the invalid type {kind}")
        values = struct.Struct(f"={instances}{_TYPES[kind]}")
        found[name] = values.unpack_from(table, place + 8)
        place += 8 + values.size
        if name == _SPEED and unit == _TENTHS:
            speed_unit_bps = _GBPS // 10
    nothing = (_NONE64,) * LINKS
    return _xgmi(
        revision_text,
        found.get(_WIDTH, (_NONE16,))[0],
        found.get(_SPEED, (_NONE16,))[0] * speed_unit_bps,
        (*found.get(_READ, ()), *nothing)[:LINKS],
        (*found.get(_WRITTEN, ()), *nothing)[:LINKS],
        (*found.get(_STATUS, ()), *nothing)[:LINKS],
    )


def _xgmi(
    revision: str,
    width: int,
    lane_bps: int,
    read: Sequence[int],
    written: Sequence[int],
    status: Sequence[int],
) -> Xgmi:
    lanes = width if 0 < width < _NONE16 else None
    known = lanes is not None and 0 < lane_bps < _NONE16 * _GBPS // 10
    return Xgmi(
        revision,
        lanes,
        width * lane_bps if known else None,
        _bytes(read),
        _bytes(written),
        tuple(None if value >= _NONE16 else value == 1 for value in status),
    )


def _bytes(values: Sequence[int]) -> Tuple[Optional[int], ...]:
    return tuple(None if value == _NONE64 else value * _BYTES_OF_KB & _NONE64 for value in values)


_DRM = "sys/class/drm"
_CARD = re.compile(r"card\d+")
_BYTES = ("xgmi_tx_bytes", "xgmi_rx_bytes")
_SPEED_METRIC = "xgmi_speed_bps"
_STATE = "xgmi_state"


class _Gpu(NamedTuple):
    """A GPU's open table, its links by number, and whether they report their state."""

    table: File
    links: List[int]
    has_state: bool

    @property
    def values(self) -> int:
        """The number of values of the GPU and its links."""
        return (1 + len(self.links)) * (len(_BYTES) + 1 + self.has_state)


class XgmiLinks(Source):
    """Bytes of every xGMI link, each tick."""

    name = "xgmi"
    deadline_s = 0.5  # the firmware fills a table of each GPU

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._gpus: List[_Gpu] = []

    def discover(self) -> List[Object]:
        """A GPU as a whole, then its links, for each GPU that has any."""
        self.close()
        objects: List[Object] = []
        failures: List[SourceError] = []
        try:
            addresses = _addresses(self.host)
        except OSError as error:
            raise from_oserror(error) from error
        for index, address in enumerate(addresses):
            try:
                objects += self._objects(f"gpu{index}", address)
            except OSError as error:
                failures.append(from_oserror(error))
            except SourceError as error:
                failures.append(error)
        if not objects:
            raise failures[0] if failures else NoData("no AMD GPU")
        return objects

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The links' values; a GPU that cannot be read loses its own only."""
        values: List[Optional[int]] = []
        for gpu in self._gpus:
            first = len(values)
            try:
                values += _values(gpu, xgmi_of(gpu.table.read()))
                reason = Unsupported.reason
            except OSError as error:
                reason = from_oserror(error).reason
            except SourceError as error:
                reason = error.reason
            values += [None] * (first + gpu.values - len(values))
            for place in range(first, len(values)):
                if values[place] is None:
                    faults[place] = reason
        return values

    def signature(self) -> object:
        """Changes when a GPU appears or goes away."""
        return tuple(_addresses(self.host))

    def close(self) -> None:
        """Close the tables."""
        for gpu in self._gpus:
            gpu.table.close()
        self._gpus = []

    def _objects(self, name: str, address: str) -> List[Object]:
        place = device_facts.pci_path(self.host, address)
        if place is None:
            raise NoData(f"{address} is gone")
        table = self.host.open(place, "gpu_metrics")
        try:
            now = xgmi_of(table.read())
            links = [link for link, value in enumerate(now.written_bytes) if _has_link(now, link)]
            if not links:
                raise NoData(f"{name} has no xGMI link")
        except (OSError, SourceError):
            table.close()
            raise
        gpu = _Gpu(table, links, any(now.up[link] is not None for link in links))
        self._gpus.append(gpu)
        metrics: Tuple[str, ...] = (*_BYTES, _SPEED_METRIC)
        if gpu.has_state:
            metrics = (*metrics, _STATE)
        facts = _facts(self.host, place, address, now, len(links))
        return [Object(name, "gpu", name, facts, metrics)] + [
            Object(
                f"{name}/xgmi{link}",
                "xgmi",
                f"{name}/xgmi{link}",
                device_facts.known({"gpu": name, "link": link, "lanes": now.lanes}),
                metrics,
            )
            for link in links
        ]


def _addresses(fs: HostFS) -> List[str]:
    """The PCI addresses of the GPUs with the driver amdgpu, in order."""
    found = set()
    for card in fs.names(_DRM):
        if not _CARD.fullmatch(card):
            continue
        path = f"{_DRM}/{card}"
        if device_facts.uevent(fs, f"{path}/device").get("DRIVER") == "amdgpu":
            found.add(device_facts.pci_address(fs, path))
    return sorted(address for address in found if address is not None)


def _has_link(now: Xgmi, link: int) -> bool:
    reported = [up is not None for up in now.up]
    return (
        now.written_bytes[link] is not None
        and now.read_bytes[link] is not None
        and (reported[link] or not any(reported))
    )


def _facts(fs: HostFS, place: str, address: str, now: Xgmi, links: int) -> Dict[str, Any]:
    facts = {
        "gpu_name": fs.text(place, "product_name"),
        "uuid": fs.text(place, "unique_id"),
        "driver": "amdgpu",
        **device_facts.pci_facts(fs, place),
        "xgmi_links": links,
        "hive": fs.text(place, "xgmi_hive_info/xgmi_hive_id"),
        "bytes_from": now.revision,
        "affinity": ports.affinity(fs, address),
    }
    return device_facts.known(facts)


def _values(gpu: _Gpu, now: Xgmi) -> List[Optional[int]]:
    """The values of the GPU and of its links, in the order of their objects."""
    ways = [[of[link] for link in gpu.links] for of in (now.written_bytes, now.read_bytes)]
    values: List[Optional[int]] = [_sum(way) for way in ways]
    running = sum(now.up[link] is not False for link in gpu.links)
    values.append(None if now.speed_bps is None else now.speed_bps * running)
    if gpu.has_state:
        values.append(int(running > 0))
    for place, link in enumerate(gpu.links):
        values += [ways[0][place], ways[1][place], now.speed_bps]
        if gpu.has_state:
            up = now.up[link]
            values.append(None if up is None else int(up))
    return values


def _sum(parts: List[Optional[int]]) -> Optional[int]:
    """The sum of all parts; None when one is not known."""
    known = [part for part in parts if part is not None]
    return sum(known) & MASK64 if len(known) == len(parts) else None
