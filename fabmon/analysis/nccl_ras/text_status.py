"""The text of NCCL's RAS, 2.24 to 2.30, as `STATUS` or `VERBOSE STATUS` prints it.

The user guide says that it varies from release to release: fields of a line are matched, and lines
that are unknown are passed over. It lists what differs between ranks, and names the ranks of small
groups only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from fabmon.analysis.nccl_ras.job_status import (
    Communicator,
    CountGroup,
    JobStatus,
    Member,
    MissingMember,
    MissingProcess,
    RasError,
    StateGroup,
)
from fabmon.fabric.wire.messages import clean

_MOST_LINES = 2_000_000
_MOST_LENGTH = 400

_VERSION = re.compile(r"NCCL version (\S+)")
_COLLECTED = re.compile(r"Communicators\.\.\. \((\d{1,9}(?:\.\d{1,9})?)s\)")
_TOTALS = re.compile(r"\s*\d{1,9}\s+\d{1,9}\s+\d{1,9}(?:\s+\d{1,9}\s+\d{1,9})?\s*")
_GROUP = re.compile(
    r"\s*(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})\s+([\d-]{1,20})\s+(\d{1,9})\s+(\d{1,9})\s+([A-Z]+)"
    r"\s+([A-Z,]+)\s*"
)
_HEADINGS = ("Job summary", "Communicators...", "Group ", "Errors", "Warnings")
_HEAD = re.compile(r"#(\d{1,9})-(\d{1,9}) \(([0-9a-fx]{1,40})\)")
_TIMEOUTS = re.compile(r"Encountered (\d{1,9}) communication timeout")
_PROCESS = re.compile(
    r"Process (\d{1,12}) on node (\S+) managing GPUs? ([\d,]{1,200})(?: ?\(NVML ([\d,]{1,200})\))?"
)
_DIFFERENT = re.compile(r"Communicator ranks have different (\w+) operation counts")
_COLLECTIVE = "collective"
"""What the text of NCCL before 2.26 counts: all operations together."""
_LAUNCHED = re.compile(
    r"(?:(\d{1,9}) ranks have|Rank (\d{1,9}) has) (?:launched up to operation (\d{1,18})"
    r"|not launched any)"
)
_STATE = re.compile(r"(?:(\d{1,9}) ranks have|Rank (\d{1,9}) has) status (\w+)")
_ERROR = re.compile(r"(?:(\d{1,9}) ranks|Rank (\d{1,9})) reported (.{1,80}?)(?: --|$)")
_MISSING = re.compile(r"Missing communicator data from \d{1,9} rank")
_MISSING_LIST = re.compile(r"The missing ranks?: ([\d, ]{1,300})")
_RANK = re.compile(r"Rank (\d{1,9}) ")
_MANAGED = re.compile(
    r"-- GPU (\d{1,6})(?: ?\(NVML (\d{1,6})\))? managed by process (\d{1,12}) on node (\S+)"
)


def parse_text(content: bytes) -> JobStatus:
    """The status in a text answer. Raises RasError for a text that is none."""
    reader = _Reader()
    for line in _lines(content):
        reader.accept(line)
    return reader.status()


def _lines(content: bytes) -> Iterator[str]:
    for number, line in enumerate(content.split(b"\n")):
        if number >= _MOST_LINES:
            return
        yield clean(line[:_MOST_LENGTH].decode("utf-8", "replace").rstrip("\r"))


class _Group:
    """Ranks with the same count, state or error, while its lines are read."""

    def __init__(self, found: re.Match[str], member: Member | None) -> None:
        self.size = int(found[1] or 1)
        self.members = [member] if found[2] and member is not None else []


class _Building:
    """A communicator, while its lines are read."""

    def __init__(self, name: str, digits: str, size: int) -> None:
        self.name = name
        self.hash = digits
        self.size = size
        self.operation = _COLLECTIVE
        self.counts: list[tuple[str, int, _Group]] = []
        self.states: list[tuple[str, bool, _Group]] = []
        self.missing: list[Member] = []
        self.members: list[Member] = []
        """Where the next members are added: to the group of the line before them."""

    def accept(self, line: str) -> None:
        """Read an indented line."""
        member = _member(line)
        if (found := _DIFFERENT.search(line)) is not None:
            self.operation = found[1]
        elif (found := _LAUNCHED.search(line)) is not None:
            group = _Group(found, member)
            self.counts.append((self.operation, int(found[3] or 0), group))
            self.members = group.members
        elif (found := _STATE.search(line)) is not None:
            group = _Group(found, member)
            self.states.append((found[3], False, group))
            self.members = group.members
        elif (found := _ERROR.search(line)) is not None:
            group = _Group(found, member)
            self.states.append((found[3], True, group))
            self.members = group.members
        elif _MISSING.search(line) is not None:
            self.members = self.missing
        elif (found := _MISSING_LIST.search(line)) is not None:
            self.missing += [Member(int(each)) for each in _numbers(found[1])]
        elif member is not None:
            self.members.append(member)

    def built(self, processes: Sequence[MissingProcess]) -> Communicator:
        """The communicator; missing ranks with their processes, where these are certain."""
        return Communicator(
            name=self.name,
            hash=self.hash,
            size=self.size,
            counts=tuple(
                CountGroup(operation, launched, group.size, tuple(group.members))
                for operation, launched, group in self.counts
            ),
            states=tuple(
                StateGroup(state, group.size, tuple(group.members), is_error)
                for state, is_error, group in self.states
            ),
            missing=tuple(_placed(self.missing, processes)),
        )


class _Reader:
    """Reads line by line; an indented line belongs to the heading before it."""

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {"is_complete": False}
        self._is_status = False
        self._in_summary = False
        self._section = ""
        self._open: _Building | None = None
        self._communicators: dict[str, _Building] = {}
        self._sizes: dict[str, int] = {}
        self._groups = 0
        self._processes: dict[MissingProcess, None] = {}

    def accept(self, line: str) -> None:
        """Read a line."""
        if line.startswith("#"):
            self._open = self._communicator(line)
        elif line[:1].isalpha():
            self._open = None
            self._head(line)
        elif self._open is not None:
            self._open.accept(line)
        elif line.strip():
            self._row(line)

    def _communicator(self, line: str) -> _Building | None:
        """That of a heading such as `#0-0 (27a079b828ff1a75) MISMATCH`."""
        found = _HEAD.match(line)
        if found is None:
            return None
        self._is_status = True
        group, number, digits = found.groups()
        digits = digits.removeprefix("0x")
        name = f"#{group}-{number}"
        return self._communicators.setdefault(
            f"{name} {digits}", _Building(name, digits, self._sizes.get(group, 0))
        )

    def _head(self, line: str) -> None:
        """A line that is not indented: a heading, or facts of the job."""
        self._section = line.partition(" ")[0]
        if (found := _VERSION.match(line)) is not None:
            self._facts["version"] = found[1]
        elif (found := _COLLECTED.match(line)) is not None:
            self._facts["collection_s"] = float(found[1])
        elif line.startswith("Warnings"):
            self._facts["is_complete"] = True
        elif not line.startswith(_HEADINGS):
            return
        self._is_status = True
        self._in_summary = line.startswith("Job summary") or (
            self._in_summary and line.startswith("NCCL")
        )

    def _row(self, line: str) -> None:
        """A row of a table, or a line of an error or warning of the whole job."""
        if (found := _GROUP.fullmatch(line)) is not None:
            self._sizes[found[1]] = int(found[5])
            self._groups += int(found[2])
        elif self._in_summary and (found := _TOTALS.fullmatch(line)) is not None:
            # Where nodes differ, the totals are the last row.
            numbers = [int(each) for each in line.split()]
            self._facts |= {"nodes": numbers[0], "processes": numbers[-2], "gpus": numbers[-1]}
        elif (found := _PROCESS.search(line)) is not None:
            gpus = tuple(_numbers(found[4] or found[3]))
            is_dead = self._section == "DEAD"
            self._processes[MissingProcess(found[2], int(found[1]), gpus, is_dead)] = None
        elif (found := _TIMEOUTS.search(line)) is not None:
            self._facts["timeouts"] = int(found[1])

    def status(self) -> JobStatus:
        """What was read. Raises RasError where nothing was a status."""
        if not self._is_status:
            raise RasError("neither the text nor the JSON of a RAS status")
        processes = tuple(self._processes)
        communicators = tuple(each.built(processes) for each in self._communicators.values())
        return JobStatus(
            **self._facts,
            communicators=communicators,
            missing=processes,
            communicator_count=max(self._groups, len(communicators)),
        )


def _placed(
    missing: Sequence[Member], processes: Sequence[MissingProcess]
) -> Iterator[MissingMember]:
    """Missing ranks, with the process where one rank and one process are missing."""
    dead = {(each.host, each.pid) for each in processes if each.is_dead}
    for member in missing:
        if not member.host and len(missing) == len(processes) == 1:
            (only,) = processes
            gpu = only.gpus[0] if len(only.gpus) == 1 else -1
            member = Member(member.rank, only.host, only.pid, gpu)
        is_dead = (member.host, member.pid) in dead
        yield MissingMember(member, "dead" if is_dead else "unresponsive")


def _member(line: str) -> Member | None:
    """The rank of a line and its process, where it names them."""
    rank = _RANK.search(line)
    if rank is None:
        return None
    where = _MANAGED.search(line)
    if where is None:
        return Member(int(rank[1]))
    cuda, nvml, pid, host = where.groups()
    return Member(int(rank[1]), host, int(pid), int(nvml or cuda))


def _numbers(text: str) -> Iterator[int]:
    """The numbers of a list such as `0,1, 5`."""
    return (int(each) for each in text.split(",") if each.strip())


def parse_status(content: bytes) -> JobStatus:
    """The status in an answer, text or JSON. Raises RasError."""
    from fabmon.analysis.nccl_ras.json_status import parse_json

    return parse_json(content) if content.lstrip()[:1] == b"{" else parse_text(content)
