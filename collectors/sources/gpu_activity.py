"""What NVIDIA GPUs do: how busy they are, their clock, and why it is lowered; every fifth tick."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

from collectors.readers.nvml import Gpu, Nvml
from collectors.readers.nvml import signature as nvml_signature
from collectors.source import Faults, Source, SourceError, Unsupported
from collectors.sources.nvlink import gpu_object
from collectors.wire import Object

_SM_CLOCK = 1
"""NVML_CLOCK_SM."""

_HZ_OF_MHZ = 1_000_000


def _event_reasons(gpu: Gpu) -> int:
    """Bits of nvmlClocksEventReason*; older libraries name the function after throttling."""
    try:
        return int(gpu.ask("nvmlDeviceGetCurrentClocksEventReasons"))
    except Unsupported:
        return int(gpu.ask("nvmlDeviceGetCurrentClocksThrottleReasons"))


_READS: Dict[str, Callable[[Gpu], Any]] = {
    "gpu_busy_percent": lambda gpu: gpu.ask("nvmlDeviceGetUtilizationRates").gpu,
    "gpu_sm_clock_hz": lambda gpu: gpu.ask("nvmlDeviceGetClockInfo", _SM_CLOCK) * _HZ_OF_MHZ,
    "gpu_max_sm_clock_hz": lambda gpu: gpu.ask("nvmlDeviceGetMaxClockInfo", _SM_CLOCK) * _HZ_OF_MHZ,
    "gpu_clock_reasons": _event_reasons,
}
"""Metric -> how it is read."""


class GpuActivity(Source):
    """Utilisation and clocks of every GPU."""

    name = "gpu_activity"
    every = 5

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        self._gpus: List[Tuple[Gpu, Tuple[str, ...]]] = []

    def discover(self) -> List[Object]:
        """One object per GPU, with the metrics that it supports."""
        self._gpus, failures = [], []
        for gpu in Nvml(self.host).gpus():
            metrics = []
            for metric, ask in _READS.items():
                try:
                    ask(gpu)
                except Unsupported as error:
                    failures.append(error)
                    continue
                except SourceError:
                    pass  # it is supported, and cannot be read now
                metrics.append(metric)
            if metrics:
                self._gpus.append((gpu, tuple(metrics)))
        if not self._gpus:
            raise failures[0]
        return [gpu_object(gpu, {}, metrics) for gpu, metrics in self._gpus]

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The values; a GPU that is lost loses its own only."""
        values: List[Optional[int]] = []
        for gpu, metrics in self._gpus:
            for metric in metrics:
                try:
                    values.append(int(_READS[metric](gpu)))
                except SourceError as error:
                    faults[len(values)] = error.reason
                    values.append(None)
        return values

    def signature(self) -> object:
        """Changes when a GPU appears or goes away."""
        return nvml_signature(self.host)
