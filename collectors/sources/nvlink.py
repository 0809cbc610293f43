"""NVLinks of NVIDIA GPUs: bytes each tick; state, speed and errors every tenth tick.

The bytes are those of every link and of each GPU as a whole. The counters that have them differ by
generation; they are determined once for each GPU and reported as `bytes_from`:

    fields 202/204   bytes (NVLink 5)
    fields 138/139   payload, in KiB
    fields 140/141   payload and protocol, in KiB
    gpm              no counter, but the rate of the GPU as a whole, over the last tick

A GPU's bytes are those that its links have moved since this source began, so that a link that goes
down, or comes up with all the bytes it ever moved, does not make the sum jump.

The errors are those of NVLinks and of the GPUs' PCIe links. NVLink 4 and NVLink 5 count different
things: the fields that a GPU answers at the discovery are read from then on. 0 and "unsupported"
are different: a field that is not supported is no metric.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from collectors.coverage import CoverageCount
from collectors.hostfs import HostFS
from collectors.readers import nvml, ports
from collectors.readers.nvml import WHOLE_GPU, FieldQuery, FieldValue, Gpu, Nvml
from collectors.source import MASK64, Faults, NoData, Source, SourceError, Unsupported
from collectors.wire import Object

_BYTES = ("nvlink_tx_bytes", "nvlink_rx_bytes")
_RATES = ("nvlink_tx_bps", "nvlink_rx_bps")


class _Family(NamedTuple):
    """The two fields that count a link's bytes, their unit, and the text in `bytes_from`."""

    tx: int
    rx: int
    unit_bytes: int
    text: str


_FAMILIES = (
    _Family(202, 204, 1, "fields 202/204"),
    _Family(138, 139, 1024, "fields 138/139"),
    _Family(140, 141, 1024, "fields 140/141, raw"),
)

_LINK_FIELDS: Dict[str, int] = {
    "nvlink_replays": 161,
    "nvlink_recovery_events": 162,
    "nvlink_crc_errors": 163,
    "nvlink_malformed_packets": 206,
    "nvlink_buffer_overruns": 207,
    "nvlink_rx_errors": 208,
    "nvlink_rx_remote_errors": 209,
    "nvlink_rx_general_errors": 210,
    "nvlink_integrity_errors": 211,
    "nvlink_tx_discards": 212,
    "nvlink_recoveries": 213,
    "nvlink_recovery_failures": 214,
    "nvlink_effective_errors": 219,
    "nvlink_symbol_errors": 221,
}
"""Metric -> NVML_FI_DEV_NVLINK_*; 162 and 215 both count recoveries that were begun."""
_RECOVERY_EVENTS_5 = 215

_GPU_FIELDS: Dict[str, int] = {
    "nvlink_crc_flit_errors": 38,
    "nvlink_crc_data_errors": 45,
    "nvlink_replays": 52,
    "nvlink_recovery_events": 59,
    "nvlink_ecc_errors": 160,
    "pcie_replays": 94,
    "pcie_correctable_errors": 173,
    "pcie_naks_received": 174,
    "pcie_receiver_errors": 175,
    "pcie_bad_tlp": 176,
    "pcie_naks_sent": 177,
    "pcie_bad_dllp": 178,
    "pcie_non_fatal_errors": 179,
    "pcie_fatal_errors": 180,
    "pcie_unsupported_requests": 181,
    "pcie_lcrc_errors": 182,
    "pcie_lane_errors": 183,
}
_TOTAL = "_TOTAL"
_OF_LINK = re.compile(r"_L\d+$")
_READ_FIELDS = {
    *_LINK_FIELDS.values(),
    *_GPU_FIELDS.values(),
    _RECOVERY_EVENTS_5,
    *(field for family in _FAMILIES for field in (family.tx, family.rx)),
    *(197, 198),
    *(170, 171, 172, 220, 222, 231, 232, 233, *range(235, 251)),
}
"""Fields that are read here, in pcie.py (197, 198) and in nvlink_fabric.py (the last line), or
count bytes in another unit."""
_SPEEDS = (164, 90)
"""NVLINK_GET_SPEED of a link, NVLINK_SPEED_MBPS_COMMON of all: MB/s, one direction."""
BPS_OF_MB = 8_000_000
_PAYLOAD_STEP_MB = 25_000
"""The payload of a link is a multiple of this, MB/s, from NVLink 2 on: 25 GB/s for the 25,781 MB/s
(NVLink 2, 3) and 26,562 MB/s (NVLink 4) that NVML reports with the line code, 50 GB/s for 53,125
MB/s (NVLink 5). NVIDIA states 450 GB/s each way for the 18 links of an H100."""


def gpu_object(gpu: Gpu, facts: Dict[str, Any], metrics: Tuple[str, ...]) -> Object:
    """The object of a GPU as a whole, the same in every source of GPUs."""
    return Object(gpu.name, "gpu", gpu.name, facts, metrics)


def link_object(gpu: Gpu, link: int, facts: Dict[str, Any], metrics: Tuple[str, ...]) -> Object:
    """The object of one NVLink, the same in every source of NVLinks."""
    name = f"{gpu.name}/nv{link}"
    return Object(name, "nvlink", name, facts, metrics)


class _GpuReader(ABC):
    """Reads one GPU; `objects` are in the order of its values."""

    objects: List[Object]

    @abstractmethod
    def read(self, first: int, faults: Faults) -> List[Optional[int]]:
        """The values; `first` is the position of the first of them, for the faults.

        Raises SourceError when the GPU is lost.
        """


class GpuSource(Source):
    """Base of the two sources: one reader per GPU."""

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._readers: List[_GpuReader] = []

    @abstractmethod
    def reader(self, gpu: Gpu) -> _GpuReader:
        """The reader of a GPU. Raises SourceError when there is nothing to read."""

    def discover(self) -> List[Object]:
        """A GPU as a whole, then its links, for each GPU that can be read."""
        failures: List[SourceError] = []
        self._readers = []
        for gpu in Nvml(self.host).gpus():
            try:
                self._readers.append(self.reader(gpu))
            except SourceError as error:
                failures.append(error)
        if not self._readers:
            raise failures[0]
        return [item for reader in self._readers for item in reader.objects]

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The GPUs' values; a GPU that is lost loses its own only."""
        values: List[Optional[int]] = []
        for reader in self._readers:
            try:
                values += reader.read(len(values), faults)
            except SourceError as error:
                width = sum(len(item.metrics) for item in reader.objects)
                places = range(len(values), len(values) + width)
                faults.update(dict.fromkeys(places, error.reason))
                values += [None] * width
        return values

    def signature(self) -> object:
        """Changes when a GPU appears or goes away."""
        return nvml.signature(self.host)


class Nvlink(GpuSource):
    """Bytes of every NVLink, each tick."""

    name = "nvlink"

    def reader(self, gpu: Gpu) -> _GpuReader:
        """The reader for the counters that this GPU has. Raises NoData when it has no NVLink."""
        links = gpu.links()
        if not links:
            raise NoData(f"{gpu.name} has no NVLink")
        facts = gpu.facts(self.host)
        affinity = ports.affinity(self.host, facts["pci"])
        facts.update({"nvlinks": len(links), "affinity": affinity})
        for family in _FAMILIES:
            answers = gpu.fields([(family.tx, link) for link in links])
            if any(code == 0 for code, _ in answers):
                return _CountedBytes(gpu, links, family, facts)
        return _SampledRates(gpu, facts)


class _CountedBytes(_GpuReader):
    """Links that count their bytes."""

    def __init__(self, gpu: Gpu, links: List[int], family: _Family, facts: Dict[str, Any]) -> None:
        self._gpu = gpu
        self._queries = [(field, link) for link in links for field in (family.tx, family.rx)]
        self._unit_bytes = family.unit_bytes
        self._last: List[Optional[int]] = [None] * len(self._queries)
        self._totals = [0, 0]
        self.objects = [gpu_object(gpu, {**facts, "bytes_from": family.text}, _BYTES)]
        self.objects += [link_object(gpu, link, gpu.link_facts(link), _BYTES) for link in links]

    def read(self, first: int, faults: Faults) -> List[Optional[int]]:
        answers = self._gpu.fields(self._queries)
        unit = self._unit_bytes
        values: List[Optional[int]] = [
            value * unit & MASK64 if code == 0 else None for code, value in answers
        ]
        totals = [self._total(values, direction) for direction in range(len(_BYTES))]
        last = list(values)
        for place, (code, _) in enumerate(answers):
            if code:
                reason = nvml.error_of(code, "").reason
                faults[first + len(_BYTES) + place] = reason
                direction = place % len(_BYTES)
                if reason != Unsupported.reason:
                    # A link that counts cannot be read now: the total is not known, and the bytes
                    # that it moves meanwhile are added when it can be read again.
                    totals[direction] = None
                    last[place] = self._last[place]
                if totals[direction] is None:
                    faults[first + direction] = reason
        self._last = last
        return totals + values

    def _total(self, values: List[Optional[int]], direction: int) -> Optional[int]:
        """All bytes that the links have moved since the first read; None when none counts."""
        now = values[direction::2]
        if all(value is None for value in now):
            return None
        moved = sum(
            max(0, value - last)
            for value, last in zip(now, self._last[direction::2])
            if value is not None and last is not None
        )
        self._totals[direction] = self._totals[direction] + moved & MASK64
        return self._totals[direction]


class _SampledRates(_GpuReader):
    """The rate of a GPU as a whole, by GPM, from one read to the next."""

    def __init__(self, gpu: Gpu, facts: Dict[str, Any]) -> None:
        rates = nvml.rates_of(gpu, nvml.NVLINK_TOTALS)
        if rates is None:
            raise Unsupported(f"{gpu.name} has no counters of its NVLinks")
        self._rates = rates
        self.objects = [gpu_object(gpu, {**facts, "bytes_from": "gpm"}, _RATES)]

    def read(self, first: int, faults: Faults) -> List[Optional[int]]:
        """Bits a second since the last read. Raises NoData at the first one."""
        return list(self._rates.read())


class NvlinkErrors(GpuSource):
    """State, speed and errors of every NVLink and of the GPUs' PCIe links, every tenth tick."""

    name = "nvlink_errors"
    every = 10

    def discover(self) -> List[Object]:
        """As GpuSource; counts the fields that the library answers, and which of them are read."""
        count = CoverageCount()
        for gpu in Nvml(self.host).gpus():
            named = gpu.library.fabric_fields()
            try:
                answers = gpu.fields([(number, WHOLE_GPU) for number in named.values()])
            except SourceError:
                continue
            seen = [name for name, (code, _) in zip(named, answers) if code == 0]
            totals = [name[: -len(_TOTAL)] for name in seen if name.endswith(_TOTAL)]
            known = [
                name
                for name in seen
                # A field of one link is part of the total.
                if named[name] in _READ_FIELDS or _OF_LINK.sub("", name) in totals
            ]
            count.add("nvidia", seen, known)
        self.coverage = count.result()
        return super().discover()

    def reader(self, gpu: Gpu) -> _GpuReader:
        """The reader for the fields that this GPU supports."""
        return _GpuErrors(gpu)


class _GpuErrors(_GpuReader):
    """One GPU: its own fields, then state, speed and fields of each link."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._links = gpu.links()
        own = supported_fields(gpu, _GPU_FIELDS, WHOLE_GPU)
        metrics = (("nvlink_speed_bps",) if self._links else ()) + tuple(own)
        self.objects = [gpu_object(gpu, {}, metrics)]
        self._queries: List[FieldQuery] = [(field, WHOLE_GPU) for field in own.values()]
        self._counts: List[int] = []
        for link in self._links:
            fields = supported_fields(gpu, _LINK_FIELDS, link)
            if "nvlink_recovery_events" not in fields:
                five = {"nvlink_recovery_events": _RECOVERY_EVENTS_5}
                fields.update(supported_fields(gpu, five, link))
            metrics = ("nvlink_state", "nvlink_speed_bps", *fields)
            self.objects.append(link_object(gpu, link, {}, metrics))
            self._queries += [(field, link) for field in fields.values()]
            self._counts.append(len(fields))
        self._own = len(own)
        self._queries += [(speed, link) for link in self._links for speed in _SPEEDS]

    def read(self, first: int, faults: Faults) -> List[Optional[int]]:
        answers = self._gpu.fields(self._queries)
        states = [self._state(link) for link in self._links]
        pairs = iter(answers[len(answers) - len(_SPEEDS) * len(self._links) :])
        speeds = [_speed(pair) for pair in zip(pairs, pairs)]
        values: List[Optional[int]] = []

        def put(code: int, value: int) -> None:
            if code:
                faults[first + len(values)] = nvml.error_of(code, "").reason
            values.append(None if code else value)

        if self._links:
            up = [speed for speed, state in zip(speeds, states) if state == 1]
            known = [value for code, value in up if code == 0]
            put(0 if known or not up else up[0][0], sum(known))
        for answer in answers[: self._own]:
            put(*answer)
        at = self._own
        for state, speed, count in zip(states, speeds, self._counts):
            if isinstance(state, SourceError):
                faults[first + len(values)] = state.reason
                values.append(None)
            else:
                put(0, state)
            put(*speed)
            for answer in answers[at : at + count]:
                put(*answer)
            at += count
        return values

    def _state(self, link: int) -> Union[int, SourceError]:
        """1 when a link is up, 0 when it is not; the error when its state cannot be read."""
        try:
            return int(self._gpu.ask("nvmlDeviceGetNvLinkState", link))
        except SourceError as error:
            return error


def supported_fields(gpu: Gpu, fields: Dict[str, int], scope: int) -> Dict[str, int]:
    """The fields that the GPU supports, by metric."""
    answers = gpu.fields([(field, scope) for field in fields.values()])
    return {
        metric: field
        for (metric, field), (code, _) in zip(fields.items(), answers)
        if code == 0 or not isinstance(nvml.error_of(code, ""), Unsupported)
    }


def _speed(answers: Sequence[FieldValue]) -> Tuple[int, int]:
    """Return code and payload of a link in bits a second, one direction, by the first answer with a
    speed."""
    for code, value in answers:
        if code == 0 and value:
            payload = value - value % _PAYLOAD_STEP_MB if value > _PAYLOAD_STEP_MB else value
            return 0, payload * BPS_OF_MB
    return answers[0].code or nvml.NOT_SUPPORTED, 0
