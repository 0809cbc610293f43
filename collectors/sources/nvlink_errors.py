"""State, speed and errors of NVLinks, and errors of the GPUs' PCIe links; they move rarely.

NVLink 4 and NVLink 5 count different things: what a GPU answers at discovery is what is asked of
it from then on. "0" and "unsupported" are different: a field that is not supported is no metric.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple, Union

from collectors import nvml
from collectors.hostfs import HostFS
from collectors.nvml import WHOLE_GPU, Ask, Gpu, Nvml
from collectors.source import Faults, Source, SourceError, Unsupported
from collectors.sources.nvlink import gpu_object, link_object
from collectors.wire import Object

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
        self._asks: List[Ask] = [(field, WHOLE_GPU) for field in own.values()]
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


def _speed(answers: List[nvml.Field]) -> Tuple[int, int]:
    """Code, and bits a second one way, from the answers about one link: the first that is one."""
    for code, value in answers[: len(_SPEEDS)]:
        if code == 0 and value:
            return 0, value * _BPS_OF_MB
    return answers[0].code or nvml.NOT_SUPPORTED, 0
