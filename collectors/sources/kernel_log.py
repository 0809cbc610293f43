"""Messages of the kernel about NICs, GPUs, NVSwitches and PCIe, from the start of the probe on.

They are read from /dev/kmsg, whose reader sees every record once and changes nothing for others.
Where that is refused (kernel.dmesg_restrict) the journal is queried every few seconds. Only
messages of the catalog (collectors/catalog/kernel_log.py) are reported, each kind of a device at
most once in 10 s, with the number of its repeats. A tree at another root has records of /dev/kmsg
in the file `dev/kmsg`; they are read from its start.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import time
from abc import ABC, abstractmethod
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from collectors.catalog.kernel_log import PATTERNS, RECOVERED, describe, sxid_name, xid_name
from collectors.hostfs import HostFS, readable_by
from collectors.readers.background_source import QueryThread, last_lines
from collectors.source import Denied, Faults, Logged, NoData, Source, SourceError, Unsupported
from collectors.wire import Object

_KMSG = "dev/kmsg"
_RECORD_BYTES = 8192
"""The largest record that the kernel returns (PRINTKRB_RECORD_MAX is smaller)."""
_MOST_RECORDS = 500
"""Records of one read: what is left is read in the next tick."""
_MOST_MATCHED_CHARS = 1000
_MOST_SENT_CHARS = 300

_REPEAT_S = 10.0
"""A kind of message of a device is reported once in that time."""
_MOST_LOGGED = 10
"""Messages reported in one tick; more of them wait for the next."""
_MOST_KINDS = 200
"""Kinds of messages, each of one device, that are counted at a time."""

_JOURNAL_S = 5.0
_JOURNAL_DUTY = 0.01
_JOURNAL_TIMEOUT_S = 10.0
_JOURNAL_RECORDS = 1000
_JOURNAL_RETRY_S = 600.0

LOST = "messages_lost"
"""What is reported where messages were lost, with their number since the start."""

_NUMBER = re.compile(rb"[^,]*,(\d{1,20})(?:,|$)")
"""The number of a record, its second field."""
_EXPRESSIONS = [(pattern, re.compile(pattern.expression)) for pattern in PATTERNS]


class Message(NamedTuple):
    """A message of the catalog: the name of its kind, the device, its text."""

    name: str
    device: str
    text: str


def find_message(text: str) -> Optional[Message]:
    """The message that a line of the kernel log is; None for one that is not in the catalog."""
    text = text[:_MOST_MATCHED_CHARS]
    for pattern, expression in _EXPRESSIONS:
        if pattern.needle not in text:
            continue
        found = expression.search(text)
        if found is None:
            continue
        groups = found.groupdict()
        device = groups.get("agent") or groups.get("device") or ""
        name = pattern.name
        if name == "xid":
            name = xid_name(int(groups["code"][:9]), text)
        elif name == "sxid":
            name = sxid_name(int(groups["code"][:9]), groups["word"])
        return Message(name, _device(device), text[found.start() :][:_MOST_SENT_CHARS].strip())
    return None


def _device(text: str) -> str:
    """`0000:3b:00.0`, as in /sys; NVIDIA's Xids leave the function out and may have a domain of
    eight digits. An interface is unchanged."""
    domain, separator, rest = text.partition(":")
    if not separator:
        return text
    return f"{int(domain, 16):04x}:{rest}" + ("" if "." in rest else ".0")


def record_text(record: bytes) -> str:
    """The message of a record of /dev/kmsg, without its head and its key=value lines."""
    _, _, body = record.partition(b";")
    return _unescape(body.split(b"\n", 1)[0]).decode("utf-8", "replace")


def _unescape(text: bytes) -> bytes:
    """The text with the kernel's `\\x0a` for bytes that are not printable turned back."""
    if b"\\x" not in text:
        return text
    return re.sub(rb"\\x([0-9a-f]{2})", lambda found: bytes([int(found.group(1), 16)]), text)


class _Reader(ABC):
    """Yields the new lines of the kernel log; `lost` counts those that it could not read."""

    name = ""
    lost = 0

    @abstractmethod
    def lines(self) -> List[str]:
        """The messages since the last call. Raises SourceError, OSError."""

    def close(self) -> None:
        """Close what is open."""
        return


class _KmsgReader(_Reader):
    """Reads /dev/kmsg: one record a read."""

    name = "/dev/kmsg"

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self._is_device = stat.S_ISCHR(os.fstat(self._fd).st_mode)
        self._rest = b""
        self._next: Optional[int] = None
        if self._is_device:
            os.lseek(self._fd, 0, os.SEEK_END)

    def lines(self) -> List[str]:
        if not self._is_device:
            return self._file_lines()
        found: List[str] = []
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                break
            except BrokenPipeError:
                # Overwritten before they were read: the number of the next says how many.
                self.lost += self._next is None
                continue
            if not record:
                break
            self.note_number(record)
            found.append(record_text(record))
        return found

    def note_number(self, record: bytes) -> None:
        """Count the records between the last one and this: the second field is its number."""
        number = _NUMBER.match(record)
        if number is not None:
            if self._next is not None:
                self.lost += max(0, int(number.group(1)) - self._next)
            self._next = int(number.group(1)) + 1

    def _file_lines(self) -> List[str]:
        """The records of a captured file, which follow each other without a separator."""
        data = self._rest + os.read(self._fd, _MOST_RECORDS * _RECORD_BYTES)
        whole, _, self._rest = data.rpartition(b"\n")
        records = (line for line in whole.split(b"\n") if line and not line.startswith(b" "))
        return [record_text(record) for record in records]

    def close(self) -> None:
        os.close(self._fd)


_Answer = Tuple[List[Tuple[str, str]], int]
"""Entries of the journal (cursor, message), and how many came before them."""


class _JournalReader(_Reader):
    """Queries the journal for the kernel's messages after a cursor, now and then in a thread.

    `refusal` is why /dev/kmsg cannot be read; it is part of every error.
    """

    name = "journalctl -k"

    def __init__(self, command: str, refusal: SourceError) -> None:
        self._command = command
        self._refusal = refusal
        self._cursor = ""
        self._error: Optional[SourceError] = None
        self._query: Optional[QueryThread[_Answer]] = None
        self._next_s = 0.0

    def lines(self) -> List[str]:
        found: List[str] = []
        query = self._query
        if query is not None and not query.is_alive():
            self._query = None
            found = self._take(query)
        if self._query is None and time.monotonic() >= self._next_s:
            self._query = QueryThread("journal", self._ask)
            self._query.start()
        if self._error is not None:
            raise self._error
        return found

    def _take(self, query: QueryThread[_Answer]) -> List[str]:
        """The messages that a query found; those before the first query are not new."""
        pause_s = max(_JOURNAL_S, query.duration_s / _JOURNAL_DUTY)
        is_first = not self._cursor
        entries, lost = query.found or ([], 0)
        self.lost += lost
        self._error = None
        if query.error is not None or (is_first and not entries):
            why = query.error or "the journal shows this account none of the kernel's messages"
            self._error = type(self._refusal)(f"{self._refusal}; {why}")
            pause_s = max(_JOURNAL_RETRY_S, pause_s)
        self._next_s = time.monotonic() + pause_s
        if entries:
            self._cursor = entries[-1][0]
        return [] if is_first else [text for _, text in entries]

    def _ask(self) -> _Answer:
        wanted = [f"--after-cursor={self._cursor}" if self._cursor else "--lines=1"]
        argv = [self._command, "--dmesg", "--output=json", "--no-pager", "--quiet", *wanted]
        lines, lost = last_lines(argv, _JOURNAL_RECORDS, _JOURNAL_TIMEOUT_S)
        return journal_entries("".join(lines)), lost


def journal_entries(text: str) -> List[Tuple[str, str]]:
    """The cursor and the message of each entry in the output of `journalctl -o json`.

    The journal takes a first word with a colon (`NVRM:`) out of the message.
    """
    found = []
    for line in text.splitlines():
        try:
            entry = json.loads(line)
            cursor, message = entry["__CURSOR"], entry.get("MESSAGE")
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        if isinstance(message, list):  # bytes, where it is not UTF-8
            message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256)
            message = message.decode("utf-8", "replace")
        word = entry.get("SYSLOG_IDENTIFIER")
        head = f"{word}: " if isinstance(word, str) and word != "kernel" else ""
        found.append((str(cursor), f"{head}{message}" if isinstance(message, str) else ""))
    return found


class _Repeats:
    """Limits how often the same kind of message of a device is reported.

    What ends a failure is reported at once, after all that came before it: the order says whether a
    device works.
    """

    def __init__(self) -> None:
        self._until_s: Dict[Tuple[str, str], float] = {}
        self._waiting: Dict[Tuple[str, str], Tuple[str, int]] = {}

    def add(self, message: Message) -> None:
        """Count a message; its last text is reported."""
        key = (message.device, message.name)
        if key in self._waiting or len(self._waiting) < _MOST_KINDS:
            _, count = self._waiting.pop(key, ("", 0))
            self._waiting[key] = (message.text, count + 1)
            if describe(message.name).severity == RECOVERED:
                self._until_s.clear()

    def take(self, now_s: float) -> List[Logged]:
        """What is to be reported now."""
        for key in [key for key, until_s in self._until_s.items() if until_s <= now_s]:
            del self._until_s[key]
        due = [key for key in self._waiting if key not in self._until_s][:_MOST_LOGGED]
        found = []
        for key in due:
            text, count = self._waiting.pop(key)
            self._until_s[key] = now_s + _REPEAT_S
            device, name = key
            found.append(Logged(device, name, text if count == 1 else f"{text} ({count} times)"))
        return found


class KernelLog(Source):
    """The messages of the catalog, as events; two counters say how many there were."""

    name = "kernel_log"

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._reader: Optional[_Reader] = None
        self._repeats = _Repeats()
        self._found = self._lost = 0
        self._logged: List[Logged] = []

    def discover(self) -> List[Object]:
        """One object, about the node. Raises Denied or Unsupported where no log can be read."""
        self._reader, self._lost = self._open(), 0
        facts = {"read_from": self._reader.name}
        metrics = ("kernel_log_messages", "kernel_log_lost")
        return [Object("kernel_log", "node", None, facts, metrics)]

    def read(self, faults: Faults) -> List[Optional[int]]:
        """How many messages of the catalog there were, and how many of all were lost."""
        if self._reader is None:
            raise NoData("nothing was discovered")
        for line in self._reader.lines():
            message = find_message(line)
            if message is not None:
                self._found += 1
                self._repeats.add(message)
        if self._reader.lost > self._lost:
            self._lost = self._reader.lost
            text = f"{self._lost} messages of the kernel were not read: too many came at once"
            self._repeats.add(Message(LOST, "", text))
        self._logged += self._repeats.take(time.monotonic())
        return [self._found, self._reader.lost]

    def logged(self) -> Sequence[Logged]:
        """The messages since the last call."""
        taken, self._logged = self._logged, []
        return taken

    def close(self) -> None:
        """Close the log: what is logged until the next discovery is not seen."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _open(self) -> _Reader:
        path = self.host.path(_KMSG)
        try:
            return _KmsgReader(path)
        except OSError as error:
            if not self.host.is_live:
                raise NoData(f"no {_KMSG} in this tree") from None
            refusal = _refusal(path, error)
        command = shutil.which("journalctl")
        if command is None:
            raise type(refusal)(f"{refusal}; there is no journalctl")
        return _JournalReader(command, refusal)


def _refusal(path: str, error: OSError) -> SourceError:
    """Why /dev/kmsg cannot be opened: not there (in a container), or not permitted."""
    if isinstance(error, PermissionError):
        why = readable_by(path) or "only root may read it (kernel.dmesg_restrict is 1)"
        return Denied(f"{path}: {why}")
    return Unsupported(f"{path}: {error.strerror}")
