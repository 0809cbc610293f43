"""What the kernel says of priority flow control over DCB netlink: bytes <-> facts.

Layouts are those of linux/dcbnl.h. Drivers speak one of two dialects: IEEE (802.1Qaz), or the older
CEE, which has no counters.
"""

from __future__ import annotations

import contextlib
import errno
import json
import struct
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from collectors.hostfs import File, HostFS
from collectors.readers import ports
from collectors.readers.netlink import Netlink, parse_attributes
from collectors.source import Failed, Faults, NoData, Source, SourceError, from_oserror
from collectors.sources.ethtool import RULES
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
_STRUCT = struct.Struct("=BBBxHxx8Q8Q")
"""struct ieee_pfc: capability, bits of the priorities, MACsec bypass, delay, requests sent and
indications received by priority."""

PRIORITIES = range(8)


class Pfc(NamedTuple):
    """PFC of an interface.

    `capable` is how many priorities may have it at once, None where it is not said. `priorities`
    have it on. `sent` and `received` are PFC frames by priority since the driver loaded; empty in
    the dialect that counts none. A driver that counts none leaves them at 0.
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
    """What an answer to IEEE_GET says of PFC; None when the driver says nothing of it."""
    said = _nested(answer, _IEEE).get(_IEEE_PFC, b"")
    if len(said) < _STRUCT.size:
        return None
    capable, enabled, _, _, *frames = _STRUCT.unpack_from(said)
    priorities = tuple(prio for prio in PRIORITIES if enabled >> prio & 1)
    return Pfc(capable, priorities, tuple(frames[:8]), tuple(frames[8:]))


def cee_pfc(state: bytes, config: bytes) -> Optional[Pfc]:
    """The same of the answers to PFC_GSTATE and PFC_GCFG."""
    is_on = parse_attributes(state, _HEAD.size).get(_PFC_STATE)
    said = _nested(config, _PFC_CFG)
    if not is_on or not said:
        return None
    priorities = tuple(prio for prio in PRIORITIES if any(said.get(_CEE_FIRST + prio, b"")))
    return Pfc(None, priorities if any(is_on) else ())


def _nested(answer: bytes, kind: int) -> Dict[int, bytes]:
    return parse_attributes(parse_attributes(answer, _HEAD.size).get(kind, b""), 0)


def _attribute(kind: int, data: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(data)
    return _ATTRIBUTE.pack(length, kind) + data + b"\0" * (-length % 4)


# Lossless or not: PFC of every interface, and the ends of RoCE's congestion control.
#
# Facts, in the `info` of each port that has an interface:
#
#     pfc             `on` for some priority, `off`, or `unsupported` by this kernel or driver
#     pfc_priorities  those that have it on
#     pfc_cap         how many may have it on at once
#     roce_ecn_np     priorities in which this port answers marks with CNPs (mlx5 of the vendor
# only)     roce_ecn_rp     priorities in which it slows down when told to
#     roce_cnp_dscp   with what its CNPs are sent
#     roce_tos        type of service of connections by the RDMA connection manager
#
# What is not known is not there. Beside them PFC frames by priority, where nothing else counts
# them: a driver that counts none leaves its numbers at 0, so that they are told from the first
# frame on. A tree at another root carries what the kernel would say in `<root>/dcb.json`: interface
# -> `{"pfc_cap", "pfc_en", "requests", "indications"}`, or null for one that has no DCB.


_FIXTURE = "dcb.json"
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL)
_FRAMES = tuple(f"pfc_{way}_frames_prio{prio}" for way in ("tx", "rx") for prio in PRIORITIES)

_ASK_AGAIN_S = 60.0
"""An answer holds all that the driver knows of DCB, which costs its firmware a dozen queries."""

Answer = Optional[Pfc]
"""None of an interface that has no PFC to be set."""


class _Place(NamedTuple):
    """A port with an interface, and the open files of its driver by the fact that they are of."""

    port: ports.Port
    interface: str
    files: List[Tuple[str, int, File]]


class Dcb(Source):
    """PFC of every port, asked for once a minute; RoCE's ECN, looked at with the hardware."""

    name = "dcb"
    every = 10
    deadline_s = 0.5

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._netlink: Optional[Netlink] = None
        self._places: Optional[List[_Place]] = None
        self._counting: List[str] = []
        self._said: Dict[str, Answer] = {}
        self._ask_from_s = 0.0

    def discover(self) -> List[Object]:
        """One object a port of which anything is known."""
        self.close()
        try:
            places = self._look()
        except OSError as error:
            raise from_oserror(error) from error
        answers = self._said = self._ask([place.interface for place in places])
        self._ask_from_s = time.monotonic() + _ASK_AGAIN_S
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
            raise NoData("nothing is known of PFC or of RoCE's ECN on any port")
        return objects

    def read(self, faults: Faults) -> List[Optional[int]]:
        """PFC frames of the interfaces that count them."""
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
        """Changes with an interface, and when PFC or ECN is set differently or starts to count."""
        told: List[object] = []
        with contextlib.suppress(OSError, SourceError):
            places = self._look()
            if not self.host.is_live or time.monotonic() >= self._ask_from_s:
                self._said = self._ask([place.interface for place in places])
                self._ask_from_s = time.monotonic() + _ASK_AGAIN_S
            for place in places:
                pfc = self._said.get(place.interface)
                facts = [] if pfc is None else [pfc.capable, pfc.priorities, _has_counted(pfc)]
                told.append((place.interface, facts, _roce_facts(place.files)))
        return ports.signature(self.host), repr(told)

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
        """The ports with an interface, as they were when the source was last closed."""
        if self._places is None:
            self._places = [
                _Place(port, port.netdev, _open_facts(self.host, port))
                for port in ports.find_ports(self.host)
                if port.netdev is not None
            ]
        return self._places

    def _ask(self, interfaces: List[str]) -> Dict[str, Answer]:
        """What the kernel says of the interfaces; one that went away is left out."""
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
        text = self.host.text(_FIXTURE)
        if text is None:
            return {}
        try:
            said: Dict[str, Optional[Dict[str, Any]]] = json.loads(text)
            return {name: _as_pfc(said[name]) for name in interfaces if name in said}
        except (ValueError, KeyError, TypeError) as error:
            raise Failed(f"{_FIXTURE}: {error}") from error


def ask_pfc(netlink: Netlink, interface: str) -> Answer:
    """What the kernel says of one interface, in the dialect that its driver speaks.

    Raises OSError when it cannot be said; ENODEV when there is no such interface.
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


def _as_pfc(said: Optional[Dict[str, Any]]) -> Answer:
    if said is None:
        return None
    priorities = tuple(prio for prio in PRIORITIES if said["pfc_en"] >> prio & 1)
    return Pfc(
        said.get("pfc_cap"),
        priorities,
        tuple(said.get("requests", ())),
        tuple(said.get("indications", ())),
    )


def _pfc_facts(pfc: Answer) -> Dict[str, Any]:
    if pfc is None:
        return {"pfc": "unsupported"}
    facts: Dict[str, Any] = {
        "pfc": "on" if pfc.priorities else "off",
        "pfc_priorities": list(pfc.priorities),
    }
    return facts if pfc.capable is None else {**facts, "pfc_cap": pfc.capable}


def _open_facts(fs: HostFS, port: ports.Port) -> List[Tuple[str, int, File]]:
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
    """What the files say; one that cannot be read says nothing."""
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
    """Whether the frames are worth telling: ethtool tells those of the drivers that it knows."""
    return pfc is not None and driver not in RULES and _has_counted(pfc)


def _has_counted(pfc: Pfc) -> bool:
    return any(pfc.sent) or any(pfc.received)
