"""What the kernel says of priority flow control over DCB netlink: bytes <-> facts.

Layouts are those of linux/dcbnl.h. Drivers speak one of two dialects: IEEE (802.1Qaz), or the older
CEE, which has no counters.
"""

from __future__ import annotations

import struct
from typing import Dict, NamedTuple, Optional, Tuple

from collectors.rtmessages import parse_attributes

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
