"""Bytes between NVIDIA GPUs and their host over PCIe.

Fields 197/198 count them where they are supported. Elsewhere the library only measures, for 20 ms
at a time, and the call blocks that long: a thread of its own asks, one GPU and direction after the
other, and a read takes its last answers.
"""

from __future__ import annotations

import threading
import time
from typing import Dict, List, Optional, Tuple, Union

from collectors import nvml, pcitree
from collectors.hostfs import HostFS
from collectors.nvml import WHOLE_GPU, Gpu, Nvml
from collectors.source import Faults, NoData, Source, SourceError
from collectors.sources.nvlink import gpu_object
from collectors.wire import Object

_FIELDS = ((197, WHOLE_GPU), (198, WHOLE_GPU))
_BYTES = ("pcie_tx_bytes", "pcie_rx_bytes")
_RATES = ("pcie_tx_bps", "pcie_rx_bps")
_WAYS = (0, 1)
"""NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES."""
_BPS_OF_KB = 8_000

Sampled = Dict[Tuple[int, int], Union[int, SourceError]]
"""(GPU's index, way) -> bits a second, or why there is no answer."""


class Pcie(Source):
    """PCIe bytes of every GPU, each tick."""

    name = "pcie"

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._gpus: List[Tuple[Gpu, bool]] = []
        self._sampler: Optional[_Sampler] = None

    def discover(self) -> List[Object]:
        """One object a GPU that counts or measures."""
        self.close()
        objects: List[Object] = []
        failures: List[SourceError] = []
        for gpu in Nvml(self.host).gpus():
            try:
                counts = all(code == 0 for code, _ in gpu.fields(_FIELDS))
                if not counts:
                    gpu.ask("nvmlDeviceGetPcieThroughput", _WAYS[0])
                facts = gpu.facts(self.host)
                facts["affinity"] = pcitree.affinity(self.host, facts["pci"])
            except SourceError as error:
                failures.append(error)
                continue
            objects.append(gpu_object(gpu, facts, _BYTES if counts else _RATES))
            self._gpus.append((gpu, counts))
        if not objects:
            raise failures[0]
        measured = [gpu for gpu, counts in self._gpus if not counts]
        if measured:
            self._sampler = _Sampler(measured)
        return objects

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The values; a GPU that is lost costs its own."""
        values: List[Optional[int]] = []
        for gpu, counts in self._gpus:
            for answer in self._counted(gpu) if counts else self._measured(gpu):
                if isinstance(answer, SourceError):
                    faults[len(values)] = answer.reason
                values.append(None if isinstance(answer, SourceError) else answer)
        return values

    def signature(self) -> object:
        """Changes when a GPU comes or goes."""
        return nvml.signature(self.host)

    def close(self) -> None:
        """End the thread that measures."""
        self._gpus = []
        if self._sampler is not None:
            self._sampler.stop()
            self._sampler = None

    def _counted(self, gpu: Gpu) -> List[Union[int, SourceError]]:
        try:
            return [
                nvml.error_of(code, "") if code else value for code, value in gpu.fields(_FIELDS)
            ]
        except SourceError as error:
            return [error, error]

    def _measured(self, gpu: Gpu) -> List[Union[int, SourceError]]:
        sampled = self._sampler.last if self._sampler is not None else {}
        return [sampled.get((gpu.index, way), NoData("not measured yet")) for way in _WAYS]


class _Sampler:
    """Measures in a thread, at most once a second each; `last` has what came of it."""

    _PAUSE_S = 1.0

    def __init__(self, gpus: List[Gpu]) -> None:
        self.last: Sampled = {}
        self._gpus = gpus
        self._stopped = threading.Event()
        threading.Thread(target=self._go, name="pcie", daemon=True).start()

    def stop(self) -> None:
        """End after the measurement that is under way."""
        self._stopped.set()

    def _go(self) -> None:
        while not self._stopped.is_set():
            began_s = time.monotonic()
            for gpu in self._gpus:
                for way in _WAYS:
                    self.last[gpu.index, way] = self._measure(gpu, way)
            self._stopped.wait(max(0.0, began_s + self._PAUSE_S - time.monotonic()))

    def _measure(self, gpu: Gpu, way: int) -> Union[int, SourceError]:
        try:
            return int(gpu.ask("nvmlDeviceGetPcieThroughput", way)) * _BPS_OF_KB
        except SourceError as error:
            return error
