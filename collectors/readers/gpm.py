"""Rates of a GPU over the time between two samples, by GPM (Hopper and later).

NVML works them out from counters of the GPU that it shows nowhere else; taking a sample does not
block.
"""

from __future__ import annotations

import math
from typing import List, Optional, Sequence

from collectors.readers import nvml
from collectors.readers.nvml import Gpu
from collectors.source import Failed, NoData, SourceError

NVLINK_TOTALS = (61, 60)
"""NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, _RX_PER_SEC, in MiB a second."""
PCIE_TOTALS = (20, 21)
"""NVML_GPM_METRIC_PCIE_TX_PER_SEC, _RX_PER_SEC, in MiB a second, seen from the GPU."""
_BPS_OF_MIB = 8 * 2**20


def rates_of(gpu: Gpu, metrics: Sequence[int]) -> Optional["GpmRates"]:
    """Rates of a GPU; None where this GPU, or the library, has no GPM or not these metrics."""
    try:
        if not gpu.ask("nvmlGpmQueryDeviceSupport").isSupportedDevice:
            return None
        tried = GpmRates(gpu, metrics)
        for _ in range(2):
            try:
                tried.read()
            except (NoData, Failed):
                continue  # It takes two samples, and some time between them.
        return GpmRates(gpu, metrics)
    except SourceError:
        return None


class GpmRates:
    """Metrics of GPM in MiB a second, read as bits a second since the read before.

    Raises SourceError where samples cannot be taken.
    """

    def __init__(self, gpu: Gpu, metrics: Sequence[int]) -> None:
        self._gpu = gpu
        self._metrics = tuple(metrics)
        self._samples = [gpu.library.call("nvmlGpmSampleAlloc") for _ in range(2)]
        self._is_sampled = False

    def read(self) -> List[int]:
        """Bits a second of each metric. Raises NoData at the first read, else SourceError."""
        old, new = self._samples = self._samples[::-1]
        was_sampled, self._is_sampled = self._is_sampled, False
        self._gpu.ask("nvmlGpmSampleGet", new)
        self._is_sampled = True
        if not was_sampled:
            raise NoData("a rate needs two samples")
        request = self._gpu.library.structure("c_nvmlGpmMetricsGet_t")
        request.version, request.numMetrics = 1, len(self._metrics)
        request.sample1, request.sample2 = old, new
        for place, metric in enumerate(self._metrics):
            request.metrics[place].metricId = metric
        self._gpu.library.call("nvmlGpmMetricsGet", request)
        answers = request.metrics[: len(self._metrics)]
        code = next((answer.nvmlReturn for answer in answers if answer.nvmlReturn), None)
        if code is not None:
            raise nvml.error_of(code, f"GPM of metrics {self._metrics}")
        if not all(math.isfinite(answer.value) for answer in answers):
            raise Failed("GPM returned no number")
        return [int(answer.value * _BPS_OF_MIB) for answer in answers]
