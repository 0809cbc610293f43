"""Lossless or not: PFC of every interface, and the ends of RoCE's congestion control.

Facts, in the `info` of each port that has an interface:

    pfc             `on` for some priority, `off`, or `unsupported` by this kernel or driver
    pfc_priorities  those that have it on
    pfc_cap         how many may have it on at once
    roce_ecn_np     priorities in which this port answers marks with CNPs (mlx5 of the vendor only)
    roce_ecn_rp     priorities in which it slows down when told to
    roce_cnp_dscp   with what its CNPs are sent
    roce_tos        type of service of connections by the RDMA connection manager

What is not known is not there. Beside them PFC frames by priority, where nothing else counts them:
a driver that counts none leaves its numbers at 0, so that they are told from the first frame on.
A tree at another root carries what the kernel would say in `<root>/dcb.json`: interface ->
`{"pfc_cap", "pfc_en", "requests", "indications"}`, or null for one that has no DCB.
"""

from __future__ import annotations

import contextlib
import errno
import json
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from collectors import ports
from collectors.dcbmessages import (
    GETDCB,
    IEEE_GET,
    PFC_GCFG,
    PFC_GSTATE,
    PRIORITIES,
    Pfc,
    cee_pfc,
    ieee_pfc,
    request,
)
from collectors.hostfs import HostFS
from collectors.rtnetlink import Netlink
from collectors.source import Failed, Faults, NoData, Source, SourceError, from_oserror
from collectors.sources.ethtool_names import RULES
from collectors.wire import Object

_FIXTURE = "dcb.json"
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL)
_FRAMES = tuple(f"pfc_{way}_frames_prio{prio}" for way in ("tx", "rx") for prio in PRIORITIES)

Answer = Optional[Pfc]
"""None of an interface that has no PFC to be set."""


class _Place(NamedTuple):
    interface: str
    metrics: Tuple[str, ...]


class Dcb(Source):
    """PFC and RoCE's ECN of every port, looked at with the hardware."""

    name = "dcb"
    every = 10
    deadline_s = 0.5

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._netlink: Optional[Netlink] = None
        self._found: Optional[List[ports.Port]] = None
        self._places: List[_Place] = []

    def discover(self) -> List[Object]:
        """One object a port of which anything is known."""
        self.close()
        try:
            self._found = _with_interface(self.host)
        except OSError as error:
            raise from_oserror(error) from error
        answers = self._ask([port.netdev or "" for port in self._found])
        objects: List[Object] = []
        for port in self._found:
            interface = port.netdev or ""
            info = _pfc_facts(answers[interface]) if interface in answers else {}
            info.update(_roce_facts(self.host, port))
            if info:
                frames = _counts(answers.get(interface), port.info.get("driver"))
                metrics = _FRAMES if frames else ()
                objects.append(Object(interface, port.kind, port.name, info, metrics))
                self._places.append(_Place(interface, metrics))
        if not objects:
            raise NoData("nothing is known of PFC or of RoCE's ECN on any port")
        return objects

    def read(self, faults: Faults) -> List[Optional[int]]:
        """PFC frames of the interfaces that count them."""
        counting = [place.interface for place in self._places if place.metrics]
        answers = self._ask(counting)
        values: List[Optional[int]] = []
        for interface in counting:
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
            if self._found is None:
                self._found = _with_interface(self.host)
            answers = self._ask([port.netdev or "" for port in self._found])
            for port in self._found:
                pfc = answers.get(port.netdev or "")
                facts = [] if pfc is None else [pfc.capable, pfc.priorities, _has_counted(pfc)]
                told.append((port.name, facts, _roce_facts(self.host, port)))
        return ports.signature(self.host), repr(told)

    def close(self) -> None:
        """Close the socket."""
        self._places = []
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None

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


def _with_interface(fs: HostFS) -> List[ports.Port]:
    return [port for port in ports.find_ports(fs) if port.netdev is not None]


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


def _roce_facts(fs: HostFS, port: ports.Port) -> Dict[str, Any]:
    """What the vendor's driver says below the interface; nothing where it is another driver."""
    facts: Dict[str, Any] = {}
    ecn = f"{ports.NET}/{port.netdev}/ecn"
    for role in ("np", "rp") if fs.exists(ecn) else ():
        switches = {prio: fs.number(ecn, f"roce_{role}/enable", str(prio)) for prio in PRIORITIES}
        known = {prio: value for prio, value in switches.items() if value is not None}
        if known:
            facts[f"roce_ecn_{role}"] = [prio for prio, value in known.items() if value]
    facts["roce_cnp_dscp"] = fs.number(ecn, "roce_np/cnp_dscp")
    cm = f"sys/kernel/config/rdma_cm/{port.rdma}/ports/{port.rdma_port}"
    facts["roce_tos"] = fs.number(cm, "default_roce_tos") if port.rdma else None
    return {key: value for key, value in facts.items() if value is not None}


def _counts(pfc: Answer, driver: Optional[str]) -> bool:
    """Whether the frames are worth telling: ethtool tells those of the drivers that it knows."""
    return pfc is not None and driver not in RULES and _has_counted(pfc)


def _has_counted(pfc: Pfc) -> bool:
    return any(pfc.sent) or any(pfc.received)
