"""NVIDIA's management library, through NVIDIA's own `pynvml`: GPUs, their fields, their links.

`pynvml` is part of the probe archive and is imported only where the driver's library exists.
Functions are looked up at run time: one that an old driver lacks is `Unsupported`, not an import
error.
"""

from __future__ import annotations

import ctypes
import math
import re
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from collectors.hostfs import HostFS
from collectors.readers import device_facts
from collectors.source import Denied, Failed, NoData, SourceError, Unsupported

LIBRARY = "libnvidia-ml.so.1"
DRIVER = "proc/driver/nvidia/gpus"
"""One entry per GPU that the kernel's driver has found."""

WHOLE_GPU = 0
"""The scope of a field that belongs to the GPU, not to one link."""

_MASK32 = 2**32 - 1
_RECORD = struct.Struct("=IIqqIiQ")
"""nvmlFieldValue_t: field, scope, timestamp, latency, value's type, return code, value."""

_UNSIGNED_INT = 1
"""NVML_VALUE_TYPE_UNSIGNED_INT: the upper half of the value is not defined."""

_ABSENT = (9, 12)
"""NVML_ERROR_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND."""
_UNSUPPORTED = (2, 3, 13, 21, 25, 26)
"""_INVALID_ARGUMENT (an older driver does not know the field), _NOT_SUPPORTED,
_FUNCTION_NOT_FOUND, _NO_DATA, _ARGUMENT_VERSION_MISMATCH, _DEPRECATED."""
_NO_PERMISSION = 4
NOT_SUPPORTED = 3
_REMOTE = {0: "gpu", 1: "npu", 2: "nvswitch"}
"""nvmlIntNvLinkDeviceType_t."""

_FIELD = "NVML_FI_DEV_"
_OF_FABRIC = re.compile("NVLINK|NVSWITCH|C2C|PCIE|PCI_")
_NO_COUNTER = re.compile(
    "GET|SPEED|STATE|STATUS|THRESHOLD|LINK_COUNT|LINK_ID|VERSION|REMOTE_NVLINK|MODE|SUPPORT|MAX"
    "|CONTROL|INFO|LEVEL|BER$"
)
"""Settings and levels among the fields."""

_FABRIC_STRUCTURES = ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t")
"""What nvmlDeviceGetGpuFabricInfoV fills in, the newest first: a library refuses what it does not
know."""

FieldQuery = Tuple[int, int]
"""A field's number and its scope: the link, or WHOLE_GPU."""


class FieldValue(NamedTuple):
    """The answer to one FieldQuery: `value` when `code` is 0, else NVML's return code."""

    code: int
    value: int


class FabricInfo(NamedTuple):
    """What nvmlDeviceGetGpuFabricInfoV says of a GPU's NVLink fabric.

    `state` is 0 not supported, 1 not started, 2 in progress, 3 completed; `status` is the return
    code with which it completed, 0 for success. `clique` is the number of the GPUs that reach each
    other over NVLink, within the `cluster` (a UUID, empty where there is none). `health` is the
    mask NVML_GPU_FABRIC_HEALTH_MASK_*; None where the library has none.
    """

    state: int
    status: int
    clique: int
    cluster: str
    health: Optional[int]


def error_of(code: int, text: str) -> SourceError:
    """The SourceError for an NVML return code."""
    if code in _ABSENT:
        return NoData(text)
    if code in _UNSUPPORTED:
        return Unsupported(text)
    if code == _NO_PERMISSION:
        return Denied(f"{text}; ask for access to /dev/nvidiactl and /dev/nvidia*")
    return Failed(text)


class Gpu:
    """One GPU. Every call may raise SourceError; one that fell off the bus raises Failed."""

    def __init__(self, library: "Nvml", index: int) -> None:
        self.index = index
        self.name = f"gpu{index}"
        self.library = library
        self.handle = library.call("nvmlDeviceGetHandleByIndex", index)

    def ask(self, function: str, *arguments: Any) -> Any:
        """The result of a function of pynvml for this GPU."""
        return self.library.call(function, self.handle, *arguments)

    def fields(self, queries: Sequence[FieldQuery]) -> List[FieldValue]:
        """The values in the order of the queries, in one call of the library."""
        records = self.library.call("nvmlDeviceGetFieldValues", self.handle, queries)
        return [
            FieldValue(code, value & _MASK32 if kind == _UNSIGNED_INT else value)
            for _, _, _, _, kind, code, value in _RECORD.iter_unpack(memoryview(records).cast("B"))
        ]

    def has_64_bits(self, queries: Sequence[FieldQuery]) -> bool:
        """Whether the GPU answers all of these fields, each with 64 bits."""
        records = self.library.call("nvmlDeviceGetFieldValues", self.handle, queries)
        return all(
            code == 0 and kind != _UNSIGNED_INT
            for _, _, _, _, kind, code, _ in _RECORD.iter_unpack(memoryview(records).cast("B"))
        )

    def links(self) -> List[int]:
        """The NVLinks that this GPU has, up, down or failing, by number."""
        found: List[int] = []
        most = self.library.constant("NVML_NVLINK_MAX_LINKS", 18)
        for link in range(most):
            try:
                self.ask("nvmlDeviceGetNvLinkState", link)
            except Unsupported:
                continue  # not there, or switched off: later ones may be on
            except Failed:
                pass  # it exists, and cannot be queried now
            found.append(link)
        return found

    def fabric(self) -> FabricInfo:
        """The NVLink fabric that the GPU has joined. Raises Unsupported before R535."""
        refused: SourceError = Unsupported("this driver reports no NVLink fabric")
        for name in _FABRIC_STRUCTURES:
            try:
                info = self.library.structure(name)
                self.ask("nvmlDeviceGetGpuFabricInfoV", ctypes.byref(info))
            except Unsupported as error:
                refused = error
                continue
            uuid = bytes(info.clusterUuid)
            cluster = uuid.hex() if any(uuid) else ""
            return FabricInfo(info.state, info.status, info.cliqueId, cluster, info.healthMask)
        raise refused

    def facts(self, fs: HostFS) -> Dict[str, Any]:
        """Facts that are not counters: `gpu_name`, `uuid`, `gpudirect`; PCI and NUMA as for a
        port."""
        address = pci_address(self.ask("nvmlDeviceGetPciInfo").busId)
        facts = {
            "gpu_name": self._text("nvmlDeviceGetName"),
            "uuid": self._text("nvmlDeviceGetUUID"),
            "driver": "nvidia",
            "driver_version": self.library.driver_version,
            "pci": address,
            "gpudirect": _gpudirect(fs),
        }
        place = device_facts.pci_path(fs, address)
        return device_facts.known({**facts, **(device_facts.pci_facts(fs, place) if place else {})})

    def link_facts(self, link: int) -> Dict[str, Any]:
        """`version` of the link, and the device at its other end: `remote`, `remote_pci`."""
        facts: Dict[str, Any] = {"gpu": self.name, "link": link}
        try:
            facts["version"] = self.ask("nvmlDeviceGetNvLinkVersion", link)
            facts["remote_pci"] = pci_address(
                self.ask("nvmlDeviceGetNvLinkRemotePciInfo", link).busId
            )
            facts["remote"] = _REMOTE.get(self.ask("nvmlDeviceGetNvLinkRemoteDeviceType", link))
        except SourceError:
            pass  # a link that is down has no other end, and older drivers do not report it
        return device_facts.known(facts)

    def _text(self, function: str) -> Optional[str]:
        try:
            text = self.ask(function)
        except SourceError:
            return None
        return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)


class Nvml:
    """The library, open. Raises NoData without a driver, SourceError when it cannot be used."""

    def __init__(self, fs: HostFS) -> None:
        _load(fs)
        import pynvml

        self._pynvml: Any = pynvml
        self.call("nvmlInit")
        version = self.call("nvmlSystemGetDriverVersion")
        self.driver_version = version.decode() if isinstance(version, bytes) else str(version)

    def gpus(self) -> List[Gpu]:
        """The GPUs, in the library's order. Raises NoData when there are none.

        One that cannot be opened (it fell off the bus earlier) is left out.
        """
        found = []
        for index in range(self.call("nvmlDeviceGetCount")):
            try:
                found.append(Gpu(self, index))
            except Failed:
                continue
        if not found:
            raise NoData("no NVIDIA GPU")
        return found

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function of pynvml. Raises SourceError for each of its errors."""
        found = getattr(self._pynvml, function, None)
        if found is None:
            raise Unsupported(f"this pynvml has no {function}")
        try:
            return found(*arguments)
        except self._pynvml.NVMLError as error:
            raise error_of(error.value, f"{function}: {error}") from error

    def constant(self, name: str, default: int) -> int:
        """A constant of the library's header, or `default` where this pynvml lacks it."""
        return int(getattr(self._pynvml, name, default))

    def fabric_fields(self) -> Dict[str, int]:
        """The counters of NVLink, C2C and PCIe that this pynvml knows: name -> field."""
        return {
            name[len(_FIELD) :]: number
            for name, number in vars(self._pynvml).items()
            if name.startswith(_FIELD)
            and isinstance(number, int)
            and _OF_FABRIC.search(name)
            and not _NO_COUNTER.search(name)
        }

    def structure(self, name: str) -> Any:
        """A new, empty structure of the library's header. Raises Unsupported."""
        found = getattr(self._pynvml, name, None)
        if found is None:
            raise Unsupported(f"this pynvml has no {name}")
        return found()


def _gpudirect(fs: HostFS) -> Optional[str]:
    """What GPUDirect RDMA can use: `nvidia_peermem`, `dma-buf` or `none`; None: not known.

    dma-buf needs the open kernel modules and Linux 5.12.
    """
    for module in ("nvidia_peermem", "nv_peer_mem"):
        if fs.exists("sys/module", module):
            return module
    version = fs.text("proc/driver/nvidia/version")
    kernel = re.match(r"(\d+)\.(\d+)", fs.text("proc/sys/kernel/osrelease") or "")
    if version is None or kernel is None:
        return None
    is_new = (int(kernel[1]), int(kernel[2])) >= (5, 12)
    return "dma-buf" if is_new and "Open Kernel Module" in version else "none"


def signature(fs: HostFS) -> object:
    """A value that changes when the driver is loaded or a GPU appears or goes away."""
    try:
        return tuple(fs.names(DRIVER))
    except OSError:
        return None


def pci_address(bus_id: Any) -> str:
    """NVML's `00000000:1B:00.0` -> the kernel's `0000:1b:00.0`."""
    text = bus_id.decode("ascii", "replace") if isinstance(bus_id, bytes) else str(bus_id)
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:].rjust(4, '0')}:{rest}"


def _load(fs: HostFS) -> None:
    """Load the library before pynvml, which is slow to import. Raises NoData, Unsupported.

    Below another root the library of that tree is loaded; pynvml then finds it by its name.
    """
    path = LIBRARY if fs.is_live else fs.path("usr/lib", LIBRARY)
    try:
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    except OSError as error:
        if fs.exists(DRIVER):
            raise Unsupported(f"the NVIDIA driver is loaded, its library is not: {error}") from None
        raise NoData("no NVIDIA driver") from None


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
    """Metrics of GPM (Hopper and later) in MiB a second, read as bits a second since the read
    before. NVML shows the counters behind them nowhere else; taking a sample does not block.

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
            raise error_of(code, f"GPM of metrics {self._metrics}")
        if not all(math.isfinite(answer.value) for answer in answers):
            raise Failed("GPM returned no number")
        return [int(answer.value * _BPS_OF_MIB) for answer in answers]
