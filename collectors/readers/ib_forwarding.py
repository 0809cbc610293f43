"""The forwarding tables of InfiniBand switches, from the output of `dump_fts --no_dests`.

A switch sends what is addressed to a LID out of the port that its table names for it. For each
switch the output has

    Unicast lids [0x0-0x8] of switch DR path slid 0; dlid 0; 0,1,5 guid 0x0000000000200002 (spine1):
      Lid  Out   Destination
           Port     Info
    0x0001 001
    8 valid lids dumped

Packed, a table is a byte for each LID from 0 on, the number of the port, NO_PORT where there is
none; deflated, in base64, in pieces, since a console truncates longer texts.
"""

from __future__ import annotations

import base64
import re
import zlib
from typing import Dict, List, NamedTuple

from collectors.hostfs import HostFS

NO_PORT = 255
"""Out port of a LID that a switch does not forward, as in the tables themselves."""

PIECE = 400
"""Characters of a piece: a console keeps as many of a text."""

_SWITCH = re.compile(r"Unicast lids .* guid 0x([0-9a-f]+) ")
_MAX_LID = 0xBFFF
"""The last unicast LID."""

_INFINIBAND = "sys/class/infiniband"
_OPTIONS = ("etc/opensm/opensm.conf", "opt/ufm/files/conf/opensm/opensm.conf")
_ENGINE = re.compile(r"^routing_engine\s+([\w,-]+)", re.MULTILINE)


class SwitchTables(NamedTuple):
    """The forwarding tables as they were last read.

    `packed` is by GUID of the switch. `left_out` is the number of switches whose table had no room.
    `error` says why there are no tables; those of an earlier time are not kept then. `engine` is
    the routing engine in the configuration of the subnet manager, where it runs on this node.
    """

    packed: Dict[int, List[str]]
    left_out: int = 0
    error: str = ""
    engine: str = ""


def parse_tables(text: str) -> Dict[int, Dict[int, int]]:
    """By GUID of the switch: LID -> number of the out port; 0 is the switch itself."""
    found: Dict[int, Dict[int, int]] = {}
    table: Dict[int, int] = {}
    for line in text.splitlines():
        if line.startswith("0x"):
            lid, port = int(line[:6], 16), line[7:10]
            if lid <= _MAX_LID and port.isdigit():
                table[lid] = int(port)
        else:
            header = _SWITCH.match(line)
            if header is not None:
                table = found.setdefault(int(header[1], 16), {})
    return found


def pack_table(table: Dict[int, int]) -> List[str]:
    """A table in the form of the wire."""
    out = bytearray([NO_PORT]) * (max(table, default=-1) + 1)
    for lid, port in table.items():
        out[lid] = min(port, NO_PORT)
    text = base64.b64encode(zlib.compress(bytes(out), 9)).decode()
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def routing_engine(fs: HostFS) -> str:
    """The routing engine that the subnet manager of this node is configured to use.

    Empty where the subnet manager runs elsewhere (its LID is not that of a port here), where its
    configuration cannot be read, or where it names none.
    """
    if not any(_manages(fs, device) for device in fs.names(_INFINIBAND)):
        return ""
    for path in _OPTIONS:
        match = _ENGINE.search(fs.text(path) or "")
        if match is not None:
            return match[1]
    return ""


def _manages(fs: HostFS, device: str) -> bool:
    for number in fs.names(_INFINIBAND, device, "ports"):
        port = f"{_INFINIBAND}/{device}/ports/{number}"
        lid = fs.text(port, "lid")
        if lid not in (None, "0x0", "0x0000") and lid == fs.text(port, "sm_lid"):
            return True
    return False
