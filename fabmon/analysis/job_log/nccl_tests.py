"""The output of nccl-tests: bandwidth by size, and the size at which it falls off.

Columns: size, count, type, redop, root, then time, algbw, busbw and #wrong, out of place and in
place; newer versions print fewer columns for some collectives, so that values are counted from the
end of a row. Formats: NVIDIA/nccl-tests, src/common.cu.
"""

from __future__ import annotations

import re

import msgspec

_HEADER = b"busbw"
_RANKS = b" Pid "
_MOST_ROWS = 10_000
_MOST_DEVICES = 100_000
_DEVICE = re.compile(
    r"#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+(\d+) on\s+(\S+) device\s+(\d+) \[([^\]]+)\]"
)
_NAME = re.compile(r"#\s*(?:Collective test starting|nccl-tests).*?:?\s+(\w+_perf)")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*([\d.]+)")
_OUT_OF_BOUNDS = re.compile(r"# Out of bounds values\s*:\s*(\d+) (\w+)")
_VALUES = 8


class TestRow(msgspec.Struct, frozen=True, kw_only=True):
    """A size (bytes), the times (us) and the bus bandwidths (GB/s), out of place and in place (None
    where not printed), and the number of wrong values (-1: not checked)."""

    size: int
    time_us: float
    busbw: float
    in_place_busbw: float | None
    wrong: int


class TestRun(msgspec.Struct):
    """One run: its rows, the hosts of its ranks, and the average that it printed."""

    source: str
    name: str = ""
    rows: list[TestRow] = msgspec.field(default_factory=list)
    hosts: dict[int, str] = msgspec.field(default_factory=dict)
    average: float | None = None

    @property
    def nodes(self) -> int:
        """The number of hosts; 0 if unknown."""
        return len(set(self.hosts.values()))


class TestsReader:
    """Finds runs of nccl-tests in logs."""

    def __init__(self) -> None:
        self.runs: list[TestRun] = []
        self._is_open = False
        self._hosts: dict[int, str] = {}
        self._name = ""

    def accept(self, block: bytes, source: str) -> None:
        """Read a block of whole lines."""
        if not self._is_open and _HEADER not in block and _RANKS not in block:
            return
        for line in block.split(b"\n"):
            at = line.find(b"#")
            if at >= 0 and (at == 0 or b"# " in line):
                self._comment(line[at : at + 300].decode("utf-8", "replace"), source)
            elif self._is_open and len(line) < 400:
                self._row(line)

    def _comment(self, text: str, source: str) -> None:
        if "busbw" in text and "algbw" in text:
            run = TestRun(source, self._name, hosts=self._hosts)
            if len(self.runs) < 100:
                self.runs.append(run)
            self._is_open, self._hosts, self._name = True, {}, ""
            return
        device = _DEVICE.match(text)
        if device is not None and len(self._hosts) < _MOST_DEVICES:
            self._hosts[int(device[1])] = device[3]
        name = _NAME.match(text)
        if name is not None:
            self._name = name[1]
        average = _AVERAGE.match(text)
        if average is not None and self._is_open:
            self.runs[-1].average = float(average[1])
            self._is_open = False

    def _row(self, line: bytes) -> None:
        words = line.decode("utf-8", "replace").split()
        rows = self.runs[-1].rows
        if len(words) < _VALUES or len(rows) >= _MOST_ROWS:
            return
        row = _row_of(words)
        if row is not None:
            rows.append(row)


def _row_of(words: list[str]) -> TestRow | None:
    """The values of a row; a label of a launcher before it is passed over."""
    while words and not words[0].isdigit():
        words = words[1:]
    try:
        size, tail = int(words[0][:15]), words[-8:]
        if not (words[2][:1].isalpha() and words[3][:1].isalpha()):
            return None
        time_us, _, busbw, wrong = tail[:4]
        in_place = float(tail[6])
        return TestRow(
            size=size,
            time_us=float(time_us),
            busbw=float(busbw),
            in_place_busbw=in_place,
            wrong=int(float(wrong)) if wrong != "N/A" else -1,
        )
    except (ValueError, IndexError, OverflowError):
        return None
