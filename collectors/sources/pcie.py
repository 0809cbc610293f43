"""Bytes between NVIDIA GPUs and their host over PCIe.

Fields 197/198 count them where they are supported. Elsewhere the library only measures, for 20 ms
at a time, and the call blocks that long: one thread per GPU measures, one direction after the
other, and a read returns its last answers.
"""

from __future__ import annotations

import threading
import time
from typing import Dict, List, Optional, Tuple, Union

from collectors.hostfs import HostFS
from collectors.readers import nvml, ports
from collectors.readers.nvml import WHOLE_GPU, Gpu, Nvml
from collectors.source import Failed, Faults, NoData, Source, SourceError
from collectors.sources.nvlink import gpu_object
from collectors.wire import Object

_FIELDS = ((197, WHOLE_GPU), (198, WHOLE_GPU))
_BYTES = ("pcie_tx_bytes", "pcie_rx_bytes")
_RATES = ("pcie_tx_bps", "pcie_rx_bps")
_DIRECTIONS = (0, 1)
"""NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES."""
_BPS_OF_KB = 8_000

_STALE_S = 3.0
"""An answer that is older than this is stale: the driver hangs."""


class Pcie(Source):
    """PCIe bytes of every GPU, each tick."""

    name = "pcie"

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._gpus: List[Tuple[Gpu, bool]] = []
        self._samplers: Dict[int, _Sampler] = {}

    def discover(self) -> List[Object]:
        """One object per GPU that counts or measures its PCIe bytes."""
        self.close()
        objects: List[Object] = []
        failures: List[SourceError] = []
        for gpu in Nvml(self.host).gpus():
            try:
                counts = all(code == 0 for code, _ in gpu.fields(_FIELDS))
                if not counts:
                    gpu.ask("nvmlDeviceGetPcieThroughput", _DIRECTIONS[0])
                facts = gpu.facts(self.host)
                facts["affinity"] = ports.affinity(self.host, facts["pci"])
            except SourceError as error:
                failures.append(error)
                continue
            objects.append(gpu_object(gpu, facts, _BYTES if counts else _RATES))
            self._gpus.append((gpu, counts))
        if not objects:
            raise failures[0]
        self._samplers = {gpu.index: _Sampler(gpu) for gpu, counts in self._gpus if not counts}
        return objects

    def read(self, faults: Faults) -> List[Optional[int]]:
        """Two values per GPU; a GPU that is lost loses its own only."""
        values: List[Optional[int]] = []
        for gpu, counts in self._gpus:
            for answer in self._counted(gpu) if counts else self._measured(gpu):
                if isinstance(answer, SourceError):
                    faults[len(values)] = answer.reason
                values.append(None if isinstance(answer, SourceError) else answer)
        return values

    def signature(self) -> object:
        """Changes when a GPU appears or goes away."""
        return nvml.signature(self.host)

    def close(self) -> None:
        """Stop the threads that measure."""
        self._gpus = []
        for sampler in self._samplers.values():
            sampler.stop()
        self._samplers = {}

    def _counted(self, gpu: Gpu) -> List[Union[int, SourceError]]:
        try:
            return [
                nvml.error_of(code, "") if code else value for code, value in gpu.fields(_FIELDS)
            ]
        except SourceError as error:
            return [error, error]

    def _measured(self, gpu: Gpu) -> List[Union[int, SourceError]]:
        sampler = self._samplers.get(gpu.index)
        return (
            [NoData("not measured yet")] * len(_DIRECTIONS)
            if sampler is None
            else sampler.answers()
        )


class _Sampler:
    """Measures one GPU in a thread, at most once a second each direction.

    One thread per GPU: a call that hangs for one of them stops no other.
    """

    _PAUSE_S = 1.0

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._last: Dict[int, Tuple[float, Union[int, SourceError]]] = {}
        self._began_s = time.monotonic()
        self._stopped = threading.Event()
        threading.Thread(target=self._go, name=f"pcie {gpu.index}", daemon=True).start()

    def stop(self) -> None:
        """End after the current measurement."""
        self._stopped.set()

    def answers(self) -> List[Union[int, SourceError]]:
        """Bits a second for tx and rx, or the reason why not; a stale answer is none."""
        return [self._answer(way) for way in _DIRECTIONS]

    def _answer(self, way: int) -> Union[int, SourceError]:
        at_s, answer = self._last.get(way, (self._began_s, NoData("not measured yet")))
        return Failed("late") if time.monotonic() - at_s > _STALE_S else answer

    def _go(self) -> None:
        while not self._stopped.is_set():
            began_s = time.monotonic()
            for way in _DIRECTIONS:
                self._last[way] = self._measure(way)
            self._stopped.wait(max(0.0, began_s + self._PAUSE_S - time.monotonic()))

    def _measure(self, way: int) -> Tuple[float, Union[int, SourceError]]:
        try:
            kb = int(self._gpu.ask("nvmlDeviceGetPcieThroughput", way))
        except SourceError as error:
            return time.monotonic(), error
        return time.monotonic(), kb * _BPS_OF_KB
