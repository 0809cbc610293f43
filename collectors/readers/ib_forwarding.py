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
import time
import zlib
from typing import Callable, Dict, List, NamedTuple, Optional

from collectors.hostfs import HostFS
from collectors.source import Failed, NoData, SourceError

NO_PORT = 255
"""Out port of a LID that a switch does not forward, as in the tables themselves."""

PIECE = 400
"""Characters of a piece: a console keeps as many of a text."""

MAX_TABLES_BYTES = 1024 * 1024
"""What a hello has room for besides the ports: packed tables of some 500 switches, 2,000 HCAs."""

TABLES_S = 600.0
TABLES_RETRY_S = 60.0
SETTLE_S = 10.0
"""How long after a change the tables are read: the subnet manager computes them anew first."""

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


class ForwardingTables:
    """Reads the tables at the start, after changes and every TABLES_S.

    `dump` returns the output of dump_fts, `engine` the routing engine as in SwitchTables. `last` is
    replaced as a whole; None until the tables were read or failed.
    """

    def __init__(self, dump: Callable[[], str], engine: Callable[[], str]) -> None:
        self.last: Optional[SwitchTables] = None
        self._dump = dump
        self._engine = engine
        self._due_s = 0.0

    def read_soon(self) -> None:
        """The cabling or a LID changed: read the tables once the subnet manager has new ones."""
        self._due_s = min(self._due_s, time.monotonic() + SETTLE_S)

    def read_if_due(self) -> None:
        """Read the tables if it is time.

        Without them only paths are unknown: an error is part of the tables, not of the source.
        """
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + TABLES_S
        try:
            self.last = self._packed(parse_tables(self._dump()))
        except NoData:
            pass
        except SourceError as error:
            self.last = SwitchTables({}, error=str(error), engine=self._engine())
            self._due_s = time.monotonic() + TABLES_RETRY_S

    def _packed(self, tables: Dict[int, Dict[int, int]]) -> SwitchTables:
        """The tables in the form of the wire, as many as there is room for."""
        if not tables:
            raise Failed("dump_fts printed no forwarding table")
        packed: Dict[int, List[str]] = {}
        room = MAX_TABLES_BYTES
        for guid, table in sorted(tables.items()):
            pieces = pack_table(table)
            size = sum(map(len, pieces))
            if size <= room:
                packed[guid] = pieces
                room -= size
        return SwitchTables(packed, len(tables) - len(packed), engine=self._engine())


def parse_tables(text: str) -> Dict[int, Dict[int, int]]:
    """By GUID of the switch: LID -> number of the out port; 0 is the switch itself."""
    found: Dict[int, Dict[int, int]] = {}
    table: Dict[int, int] = {}
    for line in text.splitlines():
        if line.startswith("0x"):
            lid, port = int(line[:6], 16), line[7:10]
            if lid <= _MAX_LID and port.isdecimal():
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
