"""xGMI links of AMD GPUs: bytes of every link and of each GPU as a whole, each tick.

From `gpu_metrics` of sysfs, one table a GPU that anybody may read. What a GPU read over a link it
received (`xgmi_rx_bytes`), what it wrote it sent (`xgmi_tx_bytes`): the firmware counts where the
request began. The firmware counts in KB, taken as 1,024 bytes. GPUs are numbered by PCI address, as
amd-smi numbers them. A link that the table has no counter for is not there.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from collectors import pcitree, portfacts
from collectors.gpumetrics import Xgmi, xgmi_of
from collectors.hostfs import File, HostFS
from collectors.source import (
    Faults,
    NoData,
    Source,
    SourceError,
    Unsupported,
    from_oserror,
)
from collectors.wire import Object

_DRM = "sys/class/drm"
_CARD = re.compile(r"card\d+")
_MASK64 = 2**64 - 1
_BYTES = ("xgmi_tx_bytes", "xgmi_rx_bytes")
_SPEED = "xgmi_speed_bps"
_STATE = "xgmi_state"


class _Gpu(NamedTuple):
    """A GPU's open table, its links by number, and whether they tell if they are up."""

    table: File
    links: List[int]
    tells_state: bool

    @property
    def values(self) -> int:
        """How many values it has."""
        return len(_BYTES) + 1 + len(self.links) * (len(_BYTES) + 1 + self.tells_state)


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
        """The links' values; a GPU that cannot be read costs its own."""
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
        """Changes when a GPU comes or goes."""
        return tuple(_addresses(self.host))

    def close(self) -> None:
        """Close the tables."""
        for gpu in self._gpus:
            gpu.table.close()
        self._gpus = []

    def _objects(self, name: str, address: str) -> List[Object]:
        place = pcitree.place(self.host, address)
        if place is None:
            raise NoData(f"{address} is gone")
        table = self.host.open(place, "gpu_metrics")
        try:
            now = xgmi_of(table.read())
            links = [link for link, value in enumerate(now.written_bytes) if _is_there(now, link)]
            if not links:
                raise NoData(f"{name} has no xGMI link")
        except (OSError, SourceError):
            table.close()
            raise
        gpu = _Gpu(table, links, any(now.up[link] is not None for link in links))
        self._gpus.append(gpu)
        metrics = (*_BYTES, _SPEED)
        of_a_link = (*metrics, _STATE) if gpu.tells_state else metrics
        facts = _facts(self.host, place, address, now, len(links))
        return [Object(name, "gpu", name, facts, metrics)] + [
            Object(
                f"{name}/xgmi{link}",
                "xgmi",
                f"{name}/xgmi{link}",
                portfacts.known({"gpu": name, "link": link, "lanes": now.lanes}),
                of_a_link,
            )
            for link in links
        ]


def _addresses(fs: HostFS) -> List[str]:
    """The PCI addresses of the GPUs that amdgpu drives, in order."""
    found = set()
    for card in fs.names(_DRM):
        if not _CARD.fullmatch(card):
            continue
        path = f"{_DRM}/{card}"
        if portfacts.uevent(fs, f"{path}/device").get("DRIVER") == "amdgpu":
            found.add(portfacts.pci_address(fs, path))
    return sorted(address for address in found if address is not None)


def _is_there(now: Xgmi, link: int) -> bool:
    told = [up is not None for up in now.up]
    return (
        now.written_bytes[link] is not None
        and now.read_bytes[link] is not None
        and (told[link] or not any(told))
    )


def _facts(fs: HostFS, place: str, address: str, now: Xgmi, links: int) -> Dict[str, Any]:
    facts = {
        "gpu_name": fs.text(place, "product_name"),
        "uuid": fs.text(place, "unique_id"),
        "driver": "amdgpu",
        **portfacts.pci_facts(fs, place),
        "xgmi_links": links,
        "hive": fs.text(place, "xgmi_hive_info/xgmi_hive_id"),
        "bytes_from": now.revision,
        "affinity": pcitree.affinity(fs, address),
    }
    return portfacts.known(facts)


def _values(gpu: _Gpu, now: Xgmi) -> List[Optional[int]]:
    """The values of the GPU and of its links, in the order of their objects."""
    ways = [[of[link] for link in gpu.links] for of in (now.written_bytes, now.read_bytes)]
    values: List[Optional[int]] = [_sum(way) for way in ways]
    running = sum(now.up[link] is not False for link in gpu.links)
    values.append(None if now.speed_bps is None else now.speed_bps * running)
    for place, link in enumerate(gpu.links):
        values += [ways[0][place], ways[1][place], now.speed_bps]
        if gpu.tells_state:
            up = now.up[link]
            values.append(None if up is None else int(up))
    return values


def _sum(parts: List[Optional[int]]) -> Optional[int]:
    """All of them together; None when one is not known."""
    known: Tuple[int, ...] = tuple(part for part in parts if part is not None)
    return sum(known) & _MASK64 if len(known) == len(parts) else None
