"""HPE Slingshot NICs (Cassini): `/sys/class/cxi/<device>/device/telemetry`.

A file contains `<value>@<seconds>.<nanoseconds>`: the kernel's wall clock when it read the
register. A block's clock is that of its values (docs/decisions/0003-telemetry-time.md). There are
more than a thousand files, each a read over PCIe; only those named here are opened.

Pause, according to HPE's guide: `hni_tx_paused_N` are cycles (of 1 ns) in which sending waited, so
this port was paused; `hni_rx_paused_N` those in which pause was applied to receiving, so the switch
was paused. N is the traffic class there, and the priority of the frames in `hni_pause_*`.

The object's port is that of the interface (`hsn0`) of the same PCI function; a device without one
is a port with its own name.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

from collectors import clock
from collectors.coverage import Coverage, CoverageCount
from collectors.hostfs import HostFS
from collectors.readers import device_facts, ports
from collectors.readers.counter_files import FileSource
from collectors.source import Denied, Faults, NoData, Unsupported, from_oserror
from collectors.wire import Object

_CLASS = "sys/class/cxi"
_DEVICE = re.compile(r"cxi\d+")
_NS_A_SECOND = 10**9
_CLASSES = range(8)

Files = Dict[str, Tuple[str, ...]]
"""Catalog name -> the files whose sum it is."""


def _each(stem: str, count: int = 8) -> Tuple[str, ...]:
    return tuple(f"{stem}_{number}" for number in range(count))


EACH_TICK: Files = {
    "phy_rx_bytes": ("hni_sts_rx_ok_octets",),
    "phy_tx_bytes": ("hni_sts_tx_ok_octets",),
    "phy_rx_packets": _each("hni_pkts_recv_by_tc"),
    "phy_tx_packets": _each("hni_pkts_sent_by_tc"),
    "rdma_ecn_marked": _each("ixe_tc_req_ecn_pkts") + _each("ixe_tc_rsp_ecn_pkts"),
    **{f"pfc_rx_pause_us_prio{n}": (f"hni_tx_paused_{n}",) for n in _CLASSES},
    **{f"pfc_tx_pause_us_prio{n}": (f"hni_rx_paused_{n}",) for n in _CLASSES},
}
"""Counters that are drawn. The files of pause times are in nanoseconds."""

RARELY: Files = {
    **{f"pfc_rx_frames_prio{n}": (f"hni_pause_recv_{n}",) for n in _CLASSES},
    **{f"pfc_tx_frames_prio{n}": (f"hni_pause_xoff_sent_{n}",) for n in _CLASSES},
    "pause_ctrl_tx_frames": ("hni_pause_sent",),
    "phy_rx_fec_corrected_blocks": ("hni_pcs_corrected_cw",),
    "phy_rx_fec_uncorrectable_blocks": ("hni_pcs_uncorrected_cw",),
    "cxi_discards": _each("hni_discard_cntr"),
    "cxi_pfc_fifo_drops": _each("hni_pfc_fifo_oflw_cntr"),
    "cxi_tx_llr_replays": ("hni_llr_tx_replay_event",),
    "cxi_rx_llr_replays": ("hni_llr_rx_replay_event",),
    "cxi_rx_stalled": _each("hni_rx_stall_ixe_pktbuf"),
    "cxi_no_target_nacks": ("pct_no_tct_nacks",),
    "cxi_replay_drops": ("pct_trs_replay_pend_drops",),
    "cxi_packet_timeouts": ("pct_spt_timeouts",),
    "cxi_connection_timeouts": ("pct_sct_timeouts",),
    "cxi_host_writes": ("parbs_tarb_pi_posted_pkts",),
    "cxi_host_writes_blocked": ("parbs_tarb_pi_posted_blocked_cnt",),
    "cxi_host_reads": ("parbs_tarb_pi_non_posted_pkts",),
    "cxi_host_reads_blocked": ("parbs_tarb_pi_non_posted_blocked_cnt",),
    "cxi_translation_evictions": ("atu_cache_evictions",),
    "cxi_commands_blocked": _each("cq_cycles_blocked", 4),
}
"""Counters that explain a fault, or change only with one."""


class _Clock:
    """Parses values, and keeps the first and last time at which they were read."""

    def __init__(self) -> None:
        self._first_ns = 0
        self._last_ns = 0

    def value(self, data: bytes) -> int:
        """`1234@1700000000.000000001` -> 1234. Raises ValueError."""
        value, _, stamp = data.partition(b"@")
        seconds, _, nanoseconds = stamp.partition(b".")
        self._last_ns = int(seconds) * _NS_A_SECOND + int(nanoseconds)
        self._first_ns = self._first_ns or self._last_ns
        return int(value)

    def value_in_us(self, data: bytes) -> int:
        """`value`, from nanoseconds to microseconds."""
        return self.value(data) // 1000

    def take_ns(self) -> Optional[int]:
        """The monotonic clock halfway through the values read since the last call, if any."""
        if not self._first_ns:
            return None
        middle_ns = (self._first_ns + self._last_ns) // 2
        self._first_ns = 0
        return middle_ns - (clock.time_ns() - clock.monotonic_ns())


class Cxi(FileSource):
    """Bytes, packets, pause and marks of every Slingshot NIC, each tick."""

    name = "cxi"
    files = EACH_TICK

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._clock = _Clock()

    def discover(self) -> List[Object]:
        """One object per device that has any of the files."""
        self.close()
        try:
            devices = [name for name in self.host.names(_CLASS) if _DEVICE.fullmatch(name)]
            interfaces = _interfaces(self.host)
            objects = [
                self._object(device, interfaces.get(device_facts.pci_address(self.host, path)))
                for device in sorted(devices, key=ports.natural)
                for path in (f"{_CLASS}/{device}",)
                if not self.host.names(path, "device", "physfn", "cxi")
            ]
        except OSError as error:
            raise from_oserror(error) from error
        if not objects:
            raise NoData("no Slingshot NIC")
        if self.files is EACH_TICK:
            self.coverage = self._coverage([item.id for item in objects])
        found = [item for item in objects if item.metrics]
        if not found:
            raise self._why_not(objects[0].id)
        return found

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The files' values; a file that fails loses its own value only."""
        start_ns = clock.monotonic_ns()
        values = super().read(faults)
        at_ns = self._clock.take_ns()
        if at_ns is not None:
            # A stepped clock, or a tree of another machine, must not give a time outside the read.
            at_ns = min(max(at_ns, start_ns), clock.monotonic_ns())
        self.values_ns = at_ns
        return values

    def signature(self) -> object:
        """Changes when a device or an interface appears or goes away."""
        return tuple(self.host.names(_CLASS)), super().signature()

    def close(self) -> None:
        """Close every file."""
        super().close()
        self.values_ns = None

    def _coverage(self, devices: List[str]) -> List[Coverage]:
        """What the files of all devices are, the rarely read ones included."""
        count = CoverageCount()
        known = {n for files in (EACH_TICK, RARELY) for names in files.values() for n in names}
        for device in devices:
            there = self.host.names(_CLASS, device, "device/telemetry")
            if there:
                count.add("cxi", there, known)
        return count.result()

    def _object(self, device: str, port: Optional[ports.DevicePort]) -> Object:
        path = f"{_CLASS}/{device}"
        there = set(self.host.names(path, "device/telemetry"))
        metrics = []
        value, value_in_us = self._clock.value, self._clock.value_in_us
        for metric, names in self.files.items():
            full = tuple(f"{path}/device/telemetry/{name}" for name in names)
            parse = value_in_us if "_pause_us_" in metric else value
            if there.issuperset(names) and self._files.add(*full, parse=parse):
                metrics.append(metric)
        name = device if port is None else port.name
        info = self._facts(device, path) if self.files is EACH_TICK else {}
        return Object(device, "ethernet", name, info, tuple(metrics))

    def _facts(self, device: str, path: str) -> Dict[str, Any]:
        link = "device/link/config/pause_map"
        facts = {
            "cxi": device,
            "fabric": "slingshot",
            "pause_map": self.host.text(path, link),
            "nic_address": self.host.text(path, "device/properties/nid"),
            **device_facts.device_facts(self.host, path),
        }
        return device_facts.known(facts)

    def _why_not(self, device: str) -> Exception:
        directory = f"{_CLASS}/{device}/device/telemetry"
        for name in self.host.names(directory):
            try:
                self.host.open(directory, name).close()
            except OSError as error:
                failure = from_oserror(error)
                return failure if isinstance(failure, Denied) else Unsupported(str(failure))
        return Unsupported(f"{device} has no telemetry counter that is supported")


class CxiErrors(Cxi):
    """Counters that explain a fault of a Slingshot NIC, every tenth tick."""

    name = "cxi_errors"
    every = 10
    files = RARELY


def _interfaces(fs: HostFS) -> Dict[Optional[str], ports.DevicePort]:
    """The ports that have an interface, by PCI address."""
    return {
        port.info.get("pci"): port
        for port in ports.find_ports(fs)
        if port.netdev and "pci" in port.info
    }
