"""The NVLink fabric that each NVIDIA GPU has joined, its links to the CPU, and bit errors.

Of every GPU, every tenth tick: the state of its registration with the fabric manager, the status
that it ended with, its clique, a mask of what is unhealthy (nvmlDeviceGetGpuFabricInfoV, R535 and
later), and its C2C links to a Grace CPU. Of every NVLink 5: bit error rates and the history of FEC,
which says how many symbols were corrected long before a link has errors. A value that the library
does not support is no metric.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from collectors.hostfs import HostFS
from collectors.readers import nvml
from collectors.readers.nvml import WHOLE_GPU, FieldQuery, Gpu, Nvml
from collectors.source import Faults, NoData, Source, SourceError, Unsupported
from collectors.sources.nvlink import BPS_OF_MB, gpu_object, link_object, supported_fields
from collectors.wire import Object

_FABRIC = ("gpu_fabric_state", "gpu_fabric_status", "gpu_fabric_clique", "gpu_fabric_health")

_C2C_COUNT, _C2C_STATUS, _C2C_SPEED = 170, 171, 172
"""NVML_FI_DEV_C2C_LINK_COUNT, _GET_STATUS, _GET_MAX_BW (MB/s)."""
_C2C_ERRORS = {"c2c_crc_errors": 231, "c2c_replays": 232, "c2c_repeated_replays": 233}
_MOST_C2C_LINKS = 32

FEC_BINS = 16
_LINK_FIELDS: Dict[str, int] = {
    "nvlink_effective_ber_e18": 220,
    "nvlink_symbol_ber_e18": 222,
    **{f"nvlink_fec_codewords_s{bin}": 235 + bin for bin in range(FEC_BINS)},
}
"""Metric -> NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER, _SYMBOL_BER, _FEC_HISTORY_0 to _15."""


class NvlinkFabric(Source):
    """Fabric, C2C links and bit errors of every GPU."""

    name = "nvlink_fabric"
    every = 10

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._gpus: List[_GpuFabric] = []

    def discover(self) -> List[Object]:
        """The GPUs that have any of it, and their NVLinks. Raises NoData when none has."""
        found = [_GpuFabric(gpu) for gpu in Nvml(self.host).gpus()]
        self._gpus = [each for each in found if each.objects]
        if not self._gpus:
            raise NoData("no GPU reports a fabric, C2C links or bit errors")
        return [item for each in self._gpus for item in each.objects]

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The GPUs' values; a GPU that is lost loses its own only."""
        values: List[Optional[int]] = []
        for each in self._gpus:
            values += each.read(len(values), faults)
        return values

    def signature(self) -> object:
        """Changes when a GPU appears or goes away, or joins another cluster."""
        clusters = tuple(each.cluster() for each in self._gpus)
        return nvml.signature(self.host), clusters


class _GpuFabric:
    """One GPU: what it supports of the three."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.objects: List[Object] = []
        self._metrics: List[Tuple[str, ...]] = []
        facts: Dict[str, Any] = {}
        self._fabric = self._fabric_metrics(facts)
        self._c2c = self._c2c_links()
        c2c = ("c2c_active_links", "c2c_speed_bps", *_C2C_ERRORS) if self._c2c else ()
        own = (*self._fabric, *c2c)
        if own:
            self.objects.append(gpu_object(gpu, facts, own))
        self._queries: List[FieldQuery] = []
        for link in _links(gpu):
            fields = supported_fields(gpu, _LINK_FIELDS, link)
            if fields:
                self.objects.append(link_object(gpu, link, {}, tuple(fields)))
                self._queries += [(field, link) for field in fields.values()]

    def cluster(self) -> Optional[str]:
        """The cluster's UUID; None where it is not known."""
        try:
            return self._gpu.fabric().cluster if self._fabric else None
        except SourceError:
            return None

    def read(self, first: int, faults: Faults) -> List[Optional[int]]:
        """The values; `first` is the position of the first of them, for the faults."""
        values: List[Optional[int]] = []
        parts = (
            (self._read_fabric, len(self._fabric)),
            (self._read_c2c, (2 + len(_C2C_ERRORS)) if self._c2c else 0),
            (self._read_links, len(self._queries)),
        )
        for read, width in parts:
            if not width:
                continue
            try:
                values += read(first + len(values), faults)
            except SourceError as error:
                for place in range(width):
                    faults[first + len(values) + place] = error.reason
                values += [None] * width
        return values

    def _fabric_metrics(self, facts: Dict[str, Any]) -> Tuple[str, ...]:
        """The metrics of the fabric that the GPU supports; adds the UUID to the facts."""
        try:
            info = self._gpu.fabric()
        except Unsupported:
            return ()
        except SourceError:
            return _FABRIC  # supported, and cannot be read now
        if info.cluster:
            facts["fabric_cluster"] = info.cluster
        return _FABRIC if info.health is not None else _FABRIC[:-1]

    def _c2c_links(self) -> int:
        """The number of C2C links; 0 where there are none or it is not known."""
        ((code, count),) = _asked(self._gpu, [(_C2C_COUNT, WHOLE_GPU)])
        return 0 if code else min(count, _MOST_C2C_LINKS)

    def _read_fabric(self, first: int, faults: Faults) -> List[Optional[int]]:
        info = self._gpu.fabric()
        values: List[Optional[int]] = [info.state, info.status, info.clique]
        if len(self._fabric) == len(_FABRIC):
            if info.health is None:
                faults[first + len(values)] = Unsupported.reason
            values.append(info.health)
        return values

    def _read_c2c(self, first: int, faults: Faults) -> List[Optional[int]]:
        """Links that are active, their speed together, and the errors of all of them."""
        links = range(self._c2c)
        fields = (_C2C_STATUS, _C2C_SPEED, *_C2C_ERRORS.values())
        answers = self._gpu.fields([(field, link) for field in fields for link in links])
        rows = [answers[place : place + len(links)] for place in range(0, len(answers), len(links))]
        values: List[Optional[int]] = []
        is_active = [not code and value == 1 for code, value in rows[0]]
        for number, row in enumerate(rows):
            if number == 1:
                row = [answer for answer, active in zip(row, is_active) if active]
            failed = next((code for code, _ in row if code), None)
            if failed is not None:
                faults[first + len(values)] = nvml.error_of(failed, "").reason
                values.append(None)
            else:
                total = sum(value for _, value in row)
                values.append(total * BPS_OF_MB if number == 1 else total)
        return values

    def _read_links(self, first: int, faults: Faults) -> List[Optional[int]]:
        values: List[Optional[int]] = []
        for (field, _), (code, value) in zip(self._queries, self._gpu.fields(self._queries)):
            if code:
                faults[first + len(values)] = nvml.error_of(code, "").reason
                values.append(None)
            else:
                values.append(ber_e18(value) if field in (220, 222) else value)
        return values


def ber_e18(packed: int) -> int:
    """A bit error rate in units of 10^-18: bits 0 to 7 are an exponent e, 8 to 11 a mantissa m of
    m * 10^-e (nvml.h, NVML_NVLINK_BER_*)."""
    exponent, mantissa = packed & 0xFF, packed >> 8 & 0xF
    return mantissa * 10 ** (18 - exponent) if exponent <= 18 else 0


def _links(gpu: Gpu) -> List[int]:
    try:
        return gpu.links()
    except SourceError:
        return []


def _asked(gpu: Gpu, queries: List[FieldQuery]) -> List[Tuple[int, int]]:
    try:
        return [(code, value) for code, value in gpu.fields(queries)]
    except SourceError:
        return [(nvml.NOT_SUPPORTED, 0)] * len(queries)
