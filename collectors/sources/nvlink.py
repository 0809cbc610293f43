"""NVLinks of NVIDIA GPUs: bytes of every link and of each GPU as a whole, each tick.

Who counts differs by generation, and is found out once for each GPU and said as `bytes_from`:

    fields 202/204   bytes (NVLink 5)
    fields 138/139   payload, in KiB
    fields 140/141   payload and protocol, in KiB
    gpm              no counter, but the rate of the GPU as a whole, over the last tick

A GPU's bytes are what its links have moved since this source began, so that a link that goes down,
or comes up with all it ever moved, does not make the sum jump.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

from collectors.hostfs import HostFS
from collectors.readers import nvml, pci_topology
from collectors.readers.nvml import WHOLE_GPU, FieldQuery, Gpu, Nvml
from collectors.source import Failed, Faults, NoData, Source, SourceError, Unsupported
from collectors.wire import Object

_MASK64 = 2**64 - 1
_BYTES = ("nvlink_tx_bytes", "nvlink_rx_bytes")
_RATES = ("nvlink_tx_bps", "nvlink_rx_bps")
_GPM_TOTALS = (61, 60)
"""NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, _RX_PER_SEC, in MiB a second."""
_BPS_OF_MIB = 8 * 2**20


class _Family(NamedTuple):
    tx: int
    rx: int
    unit_bytes: int
    said: str


_FAMILIES = (
    _Family(202, 204, 1, "fields 202/204"),
    _Family(138, 139, 1024, "fields 138/139"),
    _Family(140, 141, 1024, "fields 140/141, raw"),
)


class _Reader(ABC):
    """How one GPU's NVLinks are read; `objects` are in the order of its values."""

    objects: List[Object]

    @abstractmethod
    def read(self, first: int, faults: Faults) -> List[Optional[int]]:
        """The values; `first` is the place of the first of them, for the faults."""


class Nvlink(Source):
    """Bytes of every NVLink, each tick."""

    name = "nvlink"

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._readers: List[_Reader] = []

    def discover(self) -> List[Object]:
        """A GPU as a whole, then its links, for each GPU that has any."""
        failures: List[SourceError] = []
        self._readers = []
        for gpu in Nvml(self.host).gpus():
            try:
                self._readers.append(_reader(gpu, self.host))
            except SourceError as error:
                failures.append(error)
        if not self._readers:
            raise failures[0]
        return [item for reader in self._readers for item in reader.objects]

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The links' values; a GPU that is lost costs its own."""
        values: List[Optional[int]] = []
        for reader in self._readers:
            values += reader.read(len(values), faults)
        return values

    def signature(self) -> object:
        """Changes when a GPU comes or goes."""
        return nvml.signature(self.host)


def gpu_object(gpu: Gpu, facts: Dict[str, Any], metrics: Tuple[str, ...]) -> Object:
    """The object of a GPU as a whole, the same in every source of GPUs."""
    return Object(gpu.name, "gpu", gpu.name, facts, metrics)


def link_object(gpu: Gpu, link: int, facts: Dict[str, Any], metrics: Tuple[str, ...]) -> Object:
    """The object of one NVLink, the same in every source of them."""
    name = f"{gpu.name}/nv{link}"
    return Object(name, "nvlink", name, facts, metrics)


def _reader(gpu: Gpu, fs: HostFS) -> _Reader:
    """Whoever answers for this GPU. Raises NoData when it has no NVLink."""
    links = gpu.links()
    if not links:
        raise NoData(f"{gpu.name} has no NVLink")
    facts = gpu.facts(fs)
    facts.update({"nvlinks": len(links), "affinity": pci_topology.affinity(fs, facts["pci"])})
    for family in _FAMILIES:
        answers = gpu.fields([(family.tx, link) for link in links])
        if any(code == 0 for code, _ in answers):
            return _Counted(gpu, links, family, facts)
    return _Sampled(gpu, facts)


class _Counted(_Reader):
    """Links that count their bytes."""

    def __init__(self, gpu: Gpu, links: List[int], family: _Family, facts: Dict[str, Any]) -> None:
        self._gpu = gpu
        self._asks = [(field, link) for link in links for field in (family.tx, family.rx)]
        self._unit_bytes = family.unit_bytes
        self._last: List[Optional[int]] = [None] * len(self._asks)
        self._whole = [0, 0]
        self.objects = [gpu_object(gpu, {**facts, "bytes_from": family.said}, _BYTES)]
        self.objects += [link_object(gpu, link, gpu.link_facts(link), _BYTES) for link in links]

    def read(self, first: int, faults: Faults) -> List[Optional[int]]:
        try:
            answers = self._gpu.fields(self._asks)
        except SourceError as error:
            places = range(first, first + len(_BYTES) + len(self._asks))
            faults.update(dict.fromkeys(places, error.reason))
            return [None] * len(places)
        unit = self._unit_bytes
        values: List[Optional[int]] = [
            value * unit & _MASK64 if code == 0 else None for code, value in answers
        ]
        wholes = [self._sum(values, way) for way in range(len(_BYTES))]
        last = list(values)
        for place, (code, _) in enumerate(answers):
            if code:
                reason = nvml.error_of(code, "").reason
                faults[first + len(_BYTES) + place] = reason
                way = place % len(_BYTES)
                if reason != Unsupported.reason:
                    wholes[way] = None  # a link that counts cannot be read: the sum is not known
                    last[place] = self._last[place]  # until it can be: what it moved counts then
                if wholes[way] is None:
                    faults[first + way] = reason
        self._last = last
        return wholes + values

    def _sum(self, values: List[Optional[int]], way: int) -> Optional[int]:
        """All that the links have moved since the first read; None when none of them counts."""
        before = self._last[way::2]
        now = values[way::2]
        if all(value is None for value in now):
            return None
        moved = 0
        for place, value in enumerate(now):
            last = before[place]
            if value is not None and last is not None:
                moved += max(0, value - last)
        self._whole[way] = self._whole[way] + moved & _MASK64
        return self._whole[way]


class _Sampled(_Reader):
    """The rate of a GPU as a whole, by GPM: two samples, a tick apart."""

    def __init__(self, gpu: Gpu, facts: Dict[str, Any]) -> None:
        if not gpu.ask("nvmlGpmQueryDeviceSupport").isSupportedDevice:
            raise Unsupported(f"{gpu.name} counts nothing of its NVLinks")
        self._gpu = gpu
        self._samples = [gpu.library.call("nvmlGpmSampleAlloc") for _ in range(2)]
        self._is_sampled = False
        self.objects = [gpu_object(gpu, {**facts, "bytes_from": "gpm"}, _RATES)]

    def read(self, first: int, faults: Faults) -> List[Optional[int]]:
        try:
            return self._rates()
        except SourceError as error:
            faults.update({first: error.reason, first + 1: error.reason})
            return [None, None]

    def _rates(self) -> List[Optional[int]]:
        """Bits a second since the last read. Raises NoData at the first one."""
        old, new = self._samples = self._samples[::-1]
        was_sampled, self._is_sampled = self._is_sampled, False
        self._gpu.ask("nvmlGpmSampleGet", new)
        self._is_sampled = True
        if not was_sampled:
            raise NoData("a rate needs two samples")
        asked = self._gpu.library.structure("c_nvmlGpmMetricsGet_t")
        asked.version, asked.numMetrics = 1, len(_GPM_TOTALS)
        asked.sample1, asked.sample2 = old, new
        for place, metric in enumerate(_GPM_TOTALS):
            asked.metrics[place].metricId = metric
        self._gpu.library.call("nvmlGpmMetricsGet", asked)
        answers = asked.metrics[: len(_GPM_TOTALS)]
        bad = next((answer.nvmlReturn for answer in answers if answer.nvmlReturn), None)
        if bad is not None:
            raise nvml.error_of(bad, "GPM")
        if any(answer.value != answer.value for answer in answers):
            raise Failed("GPM answered no number")
        return [int(answer.value * _BPS_OF_MIB) for answer in answers]


# State, speed and errors of NVLinks, and errors of the GPUs' PCIe links; they move rarely.
#
# NVLink 4 and NVLink 5 count different things: what a GPU answers at discovery is what is asked of
# it from then on. "0" and "unsupported" are different: a field that is not supported is no metric.


_OF_A_LINK: Dict[str, int] = {
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

_OF_A_GPU: Dict[str, int] = {
    "nvlink_crc_flit_errors": 38,
    "nvlink_crc_data_errors": 45,
    "nvlink_replays": 52,
    "nvlink_recovery_events": 59,
    "nvlink_ecc_errors": 160,
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
_SPEEDS = (164, 90)
"""NVLINK_GET_SPEED of a link, NVLINK_SPEED_MBPS_COMMON of all: MB/s, one direction."""
_BPS_OF_MB = 8_000_000


class NvlinkErrors(Source):
    """State, speed and errors of every NVLink and of the GPUs' PCIe links, every tenth tick."""

    name = "nvlink_errors"
    every = 10

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._gpus: List[_GpuErrors] = []

    def discover(self) -> List[Object]:
        """Every GPU and every NVLink."""
        failures: List[SourceError] = []
        self._gpus = []
        for gpu in Nvml(self.host).gpus():
            try:
                self._gpus.append(_GpuErrors(gpu))
            except SourceError as error:
                failures.append(error)
        if not self._gpus:
            raise failures[0]
        return [item for gpu in self._gpus for item in gpu.objects]

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The fields' values; a GPU that is lost costs its own."""
        values: List[Optional[int]] = []
        for gpu in self._gpus:
            try:
                values += gpu.read(len(values), faults)
            except SourceError as error:
                faults.update(
                    dict.fromkeys(range(len(values), len(values) + gpu.width), error.reason)
                )
                values += [None] * gpu.width
        return values

    def signature(self) -> object:
        """Changes when a GPU comes or goes."""
        return nvml.signature(self.host)


class _GpuErrors:
    """One GPU: its own fields, then state, speed and fields of each link."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._links = gpu.links()
        own = _supported(gpu, _OF_A_GPU, WHOLE_GPU)
        metrics = (("nvlink_speed_bps",) if self._links else ()) + tuple(own)
        self.objects = [gpu_object(gpu, {}, metrics)]
        self._asks: List[FieldQuery] = [(field, WHOLE_GPU) for field in own.values()]
        self._counts: List[int] = []
        for link in self._links:
            fields = _supported(gpu, _OF_A_LINK, link)
            if "nvlink_recovery_events" not in fields:
                five = {"nvlink_recovery_events": _RECOVERY_EVENTS_5}
                fields.update(_supported(gpu, five, link))
            metrics = ("nvlink_state", "nvlink_speed_bps", *fields)
            self.objects.append(link_object(gpu, link, {}, metrics))
            self._asks += [(field, link) for field in fields.values()]
            self._counts.append(len(fields))
        self._own = len(own)
        self._asks += [(speed, link) for link in self._links for speed in _SPEEDS]
        self.width = sum(len(item.metrics) for item in self.objects)

    def read(self, first: int, faults: Faults) -> List[Optional[int]]:
        """The values in the order of `objects`. Raises SourceError when the GPU is lost."""
        answers = self._gpu.fields(self._asks)
        states = [self._state(link) for link in self._links]
        speeds = answers[len(answers) - len(_SPEEDS) * len(self._links) :]
        values: List[Optional[int]] = []

        def put(code: int, value: int) -> None:
            if code:
                faults[first + len(values)] = nvml.error_of(code, "").reason
            values.append(None if code else value)

        if self._links:
            up = [
                _speed(speeds[place * len(_SPEEDS) :])
                for place, state in enumerate(states)
                if not isinstance(state, SourceError) and state
            ]
            known = [value for code, value in up if code == 0]
            put(0 if known or not up else up[0][0], sum(known))
        for answer in answers[: self._own]:
            put(*answer)
        at = self._own
        for place, count in enumerate(self._counts):
            state = states[place]
            if isinstance(state, SourceError):
                faults[first + len(values)] = state.reason
                values.append(None)
            else:
                put(0, state)
            put(*_speed(speeds[place * len(_SPEEDS) :]))
            for answer in answers[at : at + count]:
                put(*answer)
            at += count
        return values

    def _state(self, link: int) -> Union[int, SourceError]:
        """1 when a link is up, 0 when it is not; one that fails costs its own value."""
        try:
            return int(self._gpu.ask("nvmlDeviceGetNvLinkState", link))
        except SourceError as error:
            return error


def _supported(gpu: Gpu, fields: Dict[str, int], scope: int) -> Dict[str, int]:
    """Those of the fields that the GPU knows."""
    answers = gpu.fields([(field, scope) for field in fields.values()])
    return {
        metric: field
        for place, (metric, field) in enumerate(fields.items())
        if not _is_unsupported(answers[place].code)
    }


def _is_unsupported(code: int) -> bool:
    return code != 0 and isinstance(nvml.error_of(code, ""), Unsupported)


def _speed(answers: List[nvml.FieldValue]) -> Tuple[int, int]:
    """Code, and bits a second one way, from the answers about one link: the first that is one."""
    for code, value in answers[: len(_SPEEDS)]:
        if code == 0 and value:
            return 0, value * _BPS_OF_MB
    return answers[0].code or nvml.NOT_SUPPORTED, 0
