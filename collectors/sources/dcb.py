"""Priority flow control of every interface, and the settings of RoCE's congestion control.

Facts, in the `info` of each port that has an interface:

    pfc             `on` for some priority, `off`, or `unsupported` by this kernel or driver
    pfc_priorities  those that have it on
    pfc_cap         how many may have it on at once
    roce_ecn_np     priorities in which this port answers ECN marks with CNPs (NVIDIA's mlx5 only)
    roce_ecn_rp     priorities in which it slows down when it receives CNPs
    roce_cnp_dscp   the DSCP of its CNPs
    roce_tos        type of service of connections by the RDMA connection manager

An unknown fact is left out. Beside them PFC frames by priority, where no other source counts them:
a driver without counters leaves its numbers at 0, so that they are reported from the first frame
on. A tree at another root carries the kernel's answers in `<root>/dcb.json`: interface ->
`{"pfc_cap", "pfc_en", "requests", "indications"}`, or null for one that has no DCB.

PFC comes from the kernel over DCB netlink; layouts are those of linux/dcbnl.h. Drivers use one of
two dialects: IEEE (802.1Qaz), or the older CEE, which has no counters.
"""

from __future__ import annotations

import contextlib
import errno
import json
import struct
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from collectors.catalog.ethernet import PRIORITIES
from collectors.hostfs import File, HostFS
from collectors.readers import ports
from collectors.readers.ethtool_names import RULES
from collectors.readers.netlink import Netlink, parse_attributes
from collectors.source import Failed, Faults, NoData, Source, SourceError, from_oserror
from collectors.wire import Object

GETDCB = 78
"""RTM_GETDCB, the kind of a request and of its answer."""

PFC_GCFG, PFC_GSTATE, IEEE_GET = 7, 14, 21
"""Commands: PFC of each priority (CEE), whether it is on at all (CEE), all of IEEE."""

_IFNAME, _PFC_STATE, _PFC_CFG, _IEEE = 1, 3, 4, 13
_IEEE_PFC = 2
_CEE_FIRST, _CEE_ALL = 1, 9
"""DCB_PFC_UP_ATTR_0, DCB_PFC_UP_ATTR_ALL."""

_HEAD = struct.Struct("=BBH")
_ATTRIBUTE = struct.Struct("=HH")
_IEEE_PFC_STRUCT = struct.Struct("=BBBxHxx8Q8Q")
"""struct ieee_pfc: capability, bits of the priorities, MACsec bypass, delay, requests sent and
indications received by priority."""


class Pfc(NamedTuple):
    """PFC of an interface.

    `capable` is how many priorities may have it at once, None where it is not reported.
    `priorities` have it on. `sent` and `received` are PFC frames by priority since the driver
    loaded; empty in the dialect without counters. A driver without counters leaves them at 0.
    """

    capable: Optional[int]
    priorities: Tuple[int, ...]
    sent: Tuple[int, ...] = ()
    received: Tuple[int, ...] = ()


def request(command: int, interface: str) -> bytes:
    """The body of a request."""
    body = _HEAD.pack(0, command, 0) + _attribute(_IFNAME, interface.encode() + b"\0")
    if command == PFC_GCFG:
        body += _attribute(_PFC_CFG, _attribute(_CEE_ALL, b""))
    return body


def ieee_pfc(answer: bytes) -> Optional[Pfc]:
    """PFC from an answer to IEEE_GET; None when the driver does not report it."""
    data = _nested(answer, _IEEE).get(_IEEE_PFC, b"")
    if len(data) < _IEEE_PFC_STRUCT.size:
        return None
    capable, enabled, _, _, *frames = _IEEE_PFC_STRUCT.unpack_from(data)
    priorities = tuple(prio for prio in PRIORITIES if enabled >> prio & 1)
    return Pfc(capable, priorities, tuple(frames[:8]), tuple(frames[8:]))


def cee_pfc(state: bytes, config: bytes) -> Optional[Pfc]:
    """PFC from the answers to PFC_GSTATE and PFC_GCFG; None when the driver does not report it."""
    is_on = parse_attributes(state, _HEAD.size).get(_PFC_STATE)
    config_of = _nested(config, _PFC_CFG)
    if not is_on or not config_of:
        return None
    priorities = tuple(prio for prio in PRIORITIES if any(config_of.get(_CEE_FIRST + prio, b"")))
    return Pfc(None, priorities if any(is_on) else ())


def _nested(answer: bytes, kind: int) -> Dict[int, bytes]:
    return parse_attributes(parse_attributes(answer, _HEAD.size).get(kind, b""), 0)


def _attribute(kind: int, data: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(data)
    return _ATTRIBUTE.pack(length, kind) + data + b"\0" * (-length % 4)


_CAPTURE = "dcb.json"
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL)
_FRAMES = tuple(f"pfc_{way}_frames_prio{prio}" for way in ("tx", "rx") for prio in PRIORITIES)

_REPEAT_S = 60.0
"""An answer contains all DCB state of the driver, which costs its firmware a dozen queries."""

Answer = Optional[Pfc]
"""None for an interface that does not support PFC."""


class _Place(NamedTuple):
    """A port with an interface, and the open files (fact, priority or -1, file) of its driver."""

    port: ports.DevicePort
    interface: str
    files: List[Tuple[str, int, File]]


class Dcb(Source):
    """PFC of every port, queried once a minute; RoCE's ECN, read with each look at the hardware."""

    name = "dcb"
    every = 10
    deadline_s = 0.5

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._netlink: Optional[Netlink] = None
        self._places: Optional[List[_Place]] = None
        self._counting: List[str] = []
        self._answers: Dict[str, Answer] = {}
        self._ask_from_s = 0.0

    def discover(self) -> List[Object]:
        """One object per port with at least one known fact."""
        self.close()
        places = self._look()
        answers = self._answers = self._ask([place.interface for place in places])
        self._ask_from_s = time.monotonic() + _REPEAT_S
        objects: List[Object] = []
        for place in places:
            port, interface = place.port, place.interface
            info = _pfc_facts(answers[interface]) if interface in answers else {}
            info.update(_roce_facts(place.files))
            if not info:
                continue
            counts = _counts(answers.get(interface), port.info.get("driver"))
            if counts:
                self._counting.append(interface)
            metrics = _FRAMES if counts else ()
            objects.append(Object(interface, port.kind, port.name, info, metrics))
        if not objects:
            raise NoData("PFC and RoCE's ECN are not known of any port")
        return objects

    def read(self, faults: Faults) -> List[Optional[int]]:
        """PFC frames of the interfaces that count them, by priority."""
        answers = self._ask(self._counting)
        values: List[Optional[int]] = []
        for interface in self._counting:
            pfc = answers.get(interface)
            if pfc is None:
                faults.update((len(values) + place, "absent") for place in range(len(_FRAMES)))
                values.extend([None] * len(_FRAMES))
            else:
                values.extend((*pfc.sent, *pfc.received))
        return values

    def signature(self) -> object:
        """Changes with an interface, and when PFC or ECN is set differently or starts counting."""
        state: List[object] = []
        with contextlib.suppress(OSError, SourceError):
            places = self._look()
            if not self.host.is_live or time.monotonic() >= self._ask_from_s:
                self._answers = self._ask([place.interface for place in places])
                self._ask_from_s = time.monotonic() + _REPEAT_S
            for place in places:
                pfc = self._answers.get(place.interface)
                facts = [] if pfc is None else [pfc.capable, pfc.priorities, _has_counted(pfc)]
                state.append((place.interface, facts, _roce_facts(place.files)))
        return ports.signature(self.host), repr(state)

    def close(self) -> None:
        """Close the socket and the files."""
        for place in self._places or ():
            for _, _, file in place.files:
                file.close()
        self._places, self._counting = None, []
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None

    def _look(self) -> List[_Place]:
        """The ports with an interface, found once until the source is closed."""
        if self._places is None:
            self._places = [
                _Place(port, port.netdev, _open_facts(self.host, port))
                for port in ports.find_ports(self.host)
                if port.netdev is not None
            ]
        return self._places

    def _ask(self, interfaces: List[str]) -> Dict[str, Answer]:
        """The kernel's answers for the interfaces; one that went away is left out."""
        if not self.host.is_live:
            return self._from_file(interfaces)
        answers: Dict[str, Answer] = {}
        try:
            if self._netlink is None:
                self._netlink = Netlink()
            for interface in interfaces:
                with contextlib.suppress(OSError):
                    answers[interface] = ask_pfc(self._netlink, interface)
        except OSError as error:
            raise from_oserror(error) from error
        return answers

    def _from_file(self, interfaces: List[str]) -> Dict[str, Answer]:
        text = self.host.text(_CAPTURE)
        if text is None:
            return {}
        try:
            found: Dict[str, Optional[Dict[str, Any]]] = json.loads(text)
            return {name: _as_pfc(found[name]) for name in interfaces if name in found}
        except (ValueError, KeyError, TypeError) as error:
            raise Failed(f"{_CAPTURE}: {error}") from error


def ask_pfc(netlink: Netlink, interface: str) -> Answer:
    """PFC of one interface from the kernel, in the dialect of its driver; None without support.

    Raises OSError; ENODEV when there is no such interface.
    """
    try:
        pfc = ieee_pfc(netlink.ask(GETDCB, request(IEEE_GET, interface)))
        if pfc is not None:
            return pfc
        state = netlink.ask(GETDCB, request(PFC_GSTATE, interface))
        return cee_pfc(state, netlink.ask(GETDCB, request(PFC_GCFG, interface)))
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        raise


def _as_pfc(facts: Optional[Dict[str, Any]]) -> Answer:
    if facts is None:
        return None
    priorities = tuple(prio for prio in PRIORITIES if facts["pfc_en"] >> prio & 1)
    return Pfc(
        facts.get("pfc_cap"),
        priorities,
        tuple(facts.get("requests", ())),
        tuple(facts.get("indications", ())),
    )


def _pfc_facts(pfc: Answer) -> Dict[str, Any]:
    if pfc is None:
        return {"pfc": "unsupported"}
    facts: Dict[str, Any] = {
        "pfc": "on" if pfc.priorities else "off",
        "pfc_priorities": list(pfc.priorities),
    }
    return facts if pfc.capable is None else {**facts, "pfc_cap": pfc.capable}


def _open_facts(fs: HostFS, port: ports.DevicePort) -> List[Tuple[str, int, File]]:
    """The files of RoCE's facts, kept open: (fact, priority or -1, file)."""
    ecn = f"{ports.NET}/{port.netdev}/ecn"
    cm = f"sys/kernel/config/rdma_cm/{port.rdma}/ports/{port.rdma_port}"
    wanted = [("roce_tos", -1, f"{cm}/default_roce_tos")] if port.rdma is not None else []
    if fs.exists(ecn):
        wanted.append(("roce_cnp_dscp", -1, f"{ecn}/roce_np/cnp_dscp"))
        for role in ("np", "rp"):
            switches = f"{ecn}/roce_{role}/enable"
            wanted += [(f"roce_ecn_{role}", prio, f"{switches}/{prio}") for prio in PRIORITIES]
    opened = []
    for fact, prio, path in wanted:
        with contextlib.suppress(OSError):
            opened.append((fact, prio, fs.open(path)))
    return opened


def _roce_facts(files: List[Tuple[str, int, File]]) -> Dict[str, Any]:
    """The facts in the files, without those that cannot be read."""
    facts: Dict[str, Any] = {}
    for fact, prio, file in files:
        with contextlib.suppress(OSError, ValueError):
            value = int(file.read())
            if prio < 0:
                facts[fact] = value
                continue
            facts.setdefault(fact, [])
            if value:
                facts[fact].append(prio)
    return facts


def _counts(pfc: Answer, driver: Optional[str]) -> bool:
    """Whether to report the frames: the source ethtool has those of the drivers that it knows."""
    return pfc is not None and driver not in RULES and _has_counted(pfc)


def _has_counted(pfc: Pfc) -> bool:
    return any(pfc.sent) or any(pfc.received)
