"""Bytes between NVIDIA GPUs and their host over PCIe.

The first of these that a GPU has, reported as `pcie_from`:

    fields 197/198   bytes, where they have 64 bits. An H100 (R580) counts 32: at full load they
                     wrap 12 times a second
    gpm              rates over the last tick (Hopper and later)
    20 ms a second   the library measures so long, and the call blocks meanwhile: one thread per GPU
                     measures, one direction after the other, and a read returns its last answers
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
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


_Answer = Union[int, SourceError]


class Pcie(Source):
    """PCIe bytes of every GPU, each tick."""

    name = "pcie"

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._readers: List[_Reader] = []

    def discover(self) -> List[Object]:
        """One object per GPU that counts or measures its PCIe bytes."""
        self.close()
        objects: List[Object] = []
        failures: List[SourceError] = []
        for gpu in Nvml(self.host).gpus():
            try:
                facts = gpu.facts(self.host)
                facts["affinity"] = ports.affinity(self.host, facts["pci"])
                reader = _reader(gpu)
            except SourceError as error:
                failures.append(error)
                continue
            facts["pcie_from"] = reader.text
            objects.append(gpu_object(gpu, facts, reader.metrics))
            self._readers.append(reader)
        if not objects:
            raise failures[0]
        return objects

    def read(self, faults: Faults) -> List[Optional[int]]:
        """Two values per GPU; a GPU that is lost loses its own only."""
        values: List[Optional[int]] = []
        for reader in self._readers:
            try:
                answers = reader.read()
            except SourceError as error:
                answers = [error] * len(reader.metrics)
            for answer in answers:
                if isinstance(answer, SourceError):
                    faults[len(values)] = answer.reason
                values.append(None if isinstance(answer, SourceError) else answer)
        return values

    def signature(self) -> object:
        """Changes when a GPU appears or goes away."""
        return nvml.signature(self.host)

    def close(self) -> None:
        """Stop the threads that measure."""
        for reader in self._readers:
            if isinstance(reader, _Sampler):
                reader.stop()
        self._readers = []


class _Reader(ABC):
    """Reads one GPU: its `metrics`, by the way that `text` names."""

    text: str
    metrics: Tuple[str, ...] = _RATES

    @abstractmethod
    def read(self) -> List[_Answer]:
        """A value for each metric, or why there is none. Raises SourceError for all of them."""


def _reader(gpu: Gpu) -> _Reader:
    """The best way to read this GPU. Raises SourceError where there is none."""
    if gpu.has_64_bits(_FIELDS):
        return _Counters(gpu)
    rates = nvml.rates_of(gpu, nvml.PCIE_TOTALS)
    if rates is not None:
        return _Rates(rates)
    gpu.ask("nvmlDeviceGetPcieThroughput", _DIRECTIONS[0])
    return _Sampler(gpu)


class _Counters(_Reader):
    """Counts of 64 bits."""

    text = "fields 197/198"
    metrics = _BYTES

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def read(self) -> List[_Answer]:
        return [
            nvml.error_of(code, "") if code else value for code, value in self._gpu.fields(_FIELDS)
        ]


class _Rates(_Reader):
    """Rates over the time since the read before."""

    text = "gpm"

    def __init__(self, rates: nvml.GpmRates) -> None:
        self._rates = rates

    def read(self) -> List[_Answer]:
        return list(self._rates.read())


class _Sampler(_Reader):
    """Measures one GPU in a thread, at most once a second each direction.

    One thread per GPU: a call that hangs for one of them stops no other.
    """

    text = "20 ms a second"

    _PAUSE_S = 1.0

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._last: Dict[int, Tuple[float, _Answer]] = {}
        self._began_s = time.monotonic()
        self._stopped = threading.Event()
        threading.Thread(target=self._go, name=f"pcie {gpu.index}", daemon=True).start()

    def stop(self) -> None:
        """End after the current measurement."""
        self._stopped.set()

    def read(self) -> List[_Answer]:
        """Bits a second for tx and rx, or the reason why not; a stale answer is none."""
        return [self._answer(way) for way in _DIRECTIONS]

    def _answer(self, way: int) -> _Answer:
        at_s, answer = self._last.get(way, (self._began_s, NoData("not measured yet")))
        return Failed("late") if time.monotonic() - at_s > _STALE_S else answer

    def _go(self) -> None:
        while not self._stopped.is_set():
            began_s = time.monotonic()
            for way in _DIRECTIONS:
                self._last[way] = self._measure(way)
            self._stopped.wait(max(0.0, began_s + self._PAUSE_S - time.monotonic()))

    def _measure(self, way: int) -> Tuple[float, _Answer]:
        try:
            kb = int(self._gpu.ask("nvmlDeviceGetPcieThroughput", way))
        except SourceError as error:
            return time.monotonic(), error
        return time.monotonic(), kb * _BPS_OF_KB
