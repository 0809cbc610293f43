"""The tools of infiniband-diags that are run, `iblinkinfo`, `perfquery` and `dump_fts`, and the
counters.

They read and never clear: perfquery never gets `-r`, `-R` or a reset mask. A tree at another root
carries their output in `<root>/ib_fabric/`: `iblinkinfo.txt`, `perfquery-x-<lid>.txt`,
`perfquery-<lid>.txt` and `dump_fts.txt`.

The extended counters have 64 bits; recent devices have the errors and the waiting among them too.
Where they are not, the classic set has them, narrow and sticking at their maximum.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Callable, Dict, List, Optional, Sequence, Tuple, Union

from collectors.catalog.rdma import OCTETS_PER_WORD
from collectors.hostfs import HostFS, readable_by
from collectors.source import (
    MASK32,
    MASK64,
    Denied,
    Failed,
    Faults,
    NoData,
    SourceError,
    Unsupported,
)

_DEVICES = "dev/infiniband"
_PATH = "/usr/sbin:/sbin:/usr/local/sbin:/opt/ufm/opensm/sbin"
"""Directories of the tools that a login's PATH may lack."""

_SWEEP_S = 120.0
_QUERY_S = 10.0
_TIMEOUT_MS = "300"
"""Of one try; perfquery makes three."""
_HEADER = re.compile(r"# Port (?:extended )?counters: Lid (\d+) port (\d+)")

Counters = Dict[str, int]
"""Counters of one port by perfquery's names."""

Answer = Callable[[], Dict[int, Counters]]
"""Waits for the counters of a query: by port number those that arrived."""


def find_tools(fs: HostFS) -> "DiagTools":
    """The tools of this machine. Raises NoData without an InfiniBand, Denied, Unsupported."""
    if not fs.is_live:
        if not fs.exists("ib_fabric"):
            raise NoData("no ib_fabric in this tree")
        return CapturedOutput(fs)
    paths = {name: _found(name) for name in ("iblinkinfo", "perfquery", "dump_fts")}
    for command in ("iblinkinfo", "perfquery"):
        if paths[command] is None:
            # The source is read on request alone: its absence is worth a word.
            raise Unsupported(f"no {command} on this node: it comes with infiniband-diags")
    check_permission(fs)
    return DiagCommands(paths["iblinkinfo"] or "", paths["perfquery"] or "", paths["dump_fts"])


def _found(command: str) -> Optional[str]:
    return shutil.which(command, path=f"{os.environ.get('PATH', '')}:{_PATH}")


def check_permission(fs: HostFS) -> None:
    """Raise Denied when devices for management datagrams exist and this account may use none."""
    devices = [fs.path(_DEVICES, name) for name in fs.names(_DEVICES) if name.startswith("umad")]
    if devices and not any(os.access(path, os.R_OK | os.W_OK) for path in devices):
        raise Denied(readable_by(devices[0]) or f"{devices[0]} may not be opened for writing")


class DiagCommands:
    """The commands of this machine; each query is a process. `dump_fts` may be missing."""

    def __init__(self, iblinkinfo: str, perfquery: str, dump_fts: Optional[str] = None) -> None:
        self._iblinkinfo = iblinkinfo
        self._perfquery = perfquery
        self._dump_fts = dump_fts
        self._running: "List[subprocess.Popen[str]]" = []

    def links(self) -> str:
        """The output of iblinkinfo for the whole fabric, one port per line. Raises SourceError."""
        return self._output("iblinkinfo", [self._iblinkinfo, "--line"])

    def forwarding_tables(self) -> str:
        """The output of dump_fts for the whole fabric, without names. Raises SourceError."""
        if self._dump_fts is None:
            raise Unsupported("no dump_fts on this node: it comes with infiniband-diags")
        return self._output("dump_fts", [self._dump_fts, "--no_dests"])

    def counters(self, lid: int, numbers: Sequence[int], *, extended: bool) -> Answer:
        """Start a query for the 64-bit counters of some ports of a LID, or for the classic ones."""
        which = ["--extended"] if extended else []
        ports = ",".join(str(number) for number in numbers)
        argv = [self._perfquery, *which, "--loop_ports", "--timeout", _TIMEOUT_MS, str(lid), ports]
        process = self._start(argv)

        def answer() -> Dict[int, Counters]:
            try:
                # Output before an error is valid: a port that does not answer ends the program.
                return parse_counters(process.communicate(timeout=_QUERY_S)[0])
            except subprocess.TimeoutExpired:
                _kill(process)
                return {}
            finally:
                self._running.remove(process)

        return answer

    def _output(self, name: str, argv: List[str]) -> str:
        process = self._start(argv)
        try:
            text, errors = process.communicate(timeout=_SWEEP_S)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise Failed(f"{name} took longer than {_SWEEP_S:g} s") from None
        finally:
            self._running.remove(process)
        if process.returncode:
            raise tool_error(name, errors)
        return text

    def stop(self) -> None:
        """Kill the queries that are running."""
        for process in list(self._running):
            process.kill()

    def _start(self, argv: List[str]) -> "subprocess.Popen[str]":
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise Failed(f"{argv[0]}: {error.strerror}") from error
        self._running.append(process)
        return process


class CapturedOutput:
    """The tools' output in a tree at another root."""

    def __init__(self, fs: HostFS) -> None:
        self._fs = fs

    def links(self) -> str:
        """The captured output of iblinkinfo."""
        return self._fs.text("ib_fabric", "iblinkinfo.txt") or ""

    def forwarding_tables(self) -> str:
        """The captured output of dump_fts. Raises NoData."""
        text = self._fs.text("ib_fabric", "dump_fts.txt")
        if text is None:
            raise NoData("no dump_fts.txt in this tree")
        return text

    def counters(self, lid: int, numbers: Sequence[int], *, extended: bool) -> Answer:
        """The captured counters of a LID."""
        text = self._fs.text("ib_fabric", f"perfquery-{'x-' if extended else ''}{lid}.txt")
        return lambda: parse_counters(text or "")

    def stop(self) -> None:
        """Nothing to stop."""


DiagTools = Union[DiagCommands, CapturedOutput]
"""Both answer the same three queries."""


def parse_counters(text: str) -> Dict[int, Counters]:
    """perfquery's output by port number; a line is `PortXmitData:....................15840`."""
    found: Dict[int, Counters] = {}
    current: Optional[Counters] = None
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header is not None:
            current = found.setdefault(int(header[2]), {})
            continue
        name, colon, rest = line.partition(":")
        value = rest.lstrip(".")
        if colon and current is not None and value.isdecimal():
            current[name] = int(value)
    return found


def tool_error(command: str, errors: str) -> SourceError:
    """The SourceError for a tool that failed, with the first line of its error output."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    text = f"{command}: {lines[0][:200] if lines else 'it failed'}"
    if "ermission denied" in errors:
        return Denied(text)
    if "open UMAD port" in errors:
        return Unsupported("no InfiniBand port with /dev/infiniband/umad*: is ib_umad loaded?")
    return Failed(text)


def _kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


_DATA: Dict[str, Tuple[str, int]] = {
    "ib_tx_bytes": ("PortXmitData", OCTETS_PER_WORD),
    "ib_rx_bytes": ("PortRcvData", OCTETS_PER_WORD),
    "ib_tx_packets": ("PortXmitPkts", 1),
    "ib_rx_packets": ("PortRcvPkts", 1),
    "ib_tx_unicast_packets": ("PortUnicastXmitPkts", 1),
    "ib_rx_unicast_packets": ("PortUnicastRcvPkts", 1),
    "ib_tx_multicast_packets": ("PortMulticastXmitPkts", 1),
    "ib_rx_multicast_packets": ("PortMulticastRcvPkts", 1),
}
_ERRORS: Dict[str, str] = {
    "tx_wait": "PortXmitWait",
    "symbol_errors": "SymbolErrorCounter",
    "link_error_recovery": "LinkErrorRecoveryCounter",
    "link_downed": "LinkDownedCounter",
    "rx_errors": "PortRcvErrors",
    "rx_remote_physical_errors": "PortRcvRemotePhysicalErrors",
    "rx_switch_relay_errors": "PortRcvSwitchRelayErrors",
    "tx_discards": "PortXmitDiscards",
    "tx_constraint_errors": "PortXmitConstraintErrors",
    "rx_constraint_errors": "PortRcvConstraintErrors",
    "local_link_integrity_errors": "LocalLinkIntegrityErrors",
    "excessive_buffer_overruns": "ExcessiveBufferOverrunErrors",
    "vl15_dropped": "VL15Dropped",
}


_NO_COUNTERS = ("PortSelect", "CounterSelect", "CounterSelect2")


class PortCounters:
    """The extended and the classic counters of a port in one round, as catalog metrics."""

    def __init__(self, extended: Counters, classic: Counters) -> None:
        self.extended = extended
        self.classic = classic

    def metrics(self) -> Tuple[str, ...]:
        """The metrics that this port has."""
        found: List[str] = [
            metric
            for metric, (name, _) in _DATA.items()
            if name in self.extended or name in self.classic
        ]
        for stem, name in _ERRORS.items():
            if name in self.extended:
                found.append(f"ib_ext_{stem}")
            elif name in self.classic:
                found.append(f"ib_{stem}")
        return tuple(found)

    def value(self, metric: str, faults: Faults, place: int) -> Optional[int]:
        """A metric's value in the catalog's unit; None with its reason at `place` in `faults`."""
        if metric in _DATA:
            name, factor = _DATA[metric]
            value = self.extended.get(name)
            if value is None:
                value = self.classic.get(name)
                if value == MASK32:
                    faults[place] = "saturated"
                    return None
            if value is not None:
                return value * factor & MASK64
        elif metric.startswith("ib_ext_"):
            value = self.extended.get(_ERRORS[metric[len("ib_ext_") :]])
        else:
            value = self.classic.get(_ERRORS[metric[len("ib_") :]])
        if value is None:
            faults[place] = "failed"
        return value


def known_names() -> List[str]:
    """perfquery's names of what is read, or says nothing about traffic."""
    return [*(name for name, _ in _DATA.values()), *_ERRORS.values(), *_NO_COUNTERS]


def needs_classic(extended: Counters) -> bool:
    """Whether a port's errors, or all of its counters, are in the classic set only."""
    return any(name not in extended for name in _ERRORS.values())
