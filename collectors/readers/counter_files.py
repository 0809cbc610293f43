"""Counter files that are read together, each tick, into a list by position.

This is the hot path of the node half: one `pread` and one parse per counter. After a second of
sleep every cache is cold, so it uses as little memory as it can: file descriptors in a list.
"""

from __future__ import annotations

from os import pread
from typing import Callable, List, Optional

from collectors.hostfs import File, HostFS
from collectors.readers import ports
from collectors.source import Faults, Source, SourceError, Unsupported, from_oserror

_MAX_BYTES = 64
"""Bytes of the longest value, with room: 20 digits, `400 Gb/sec (4X NDR)`, `N/A (no PMA)`."""

_READ_ERRORS = (OSError, ValueError, SourceError)

Parse = Callable[[bytes], int]
"""Bytes of a file -> a value. Raises ValueError, or SourceError with the reason."""


class _Run:
    """Adjacent files that are parsed the same way. A sum is a run of its own."""

    __slots__ = ("fds", "is_sum", "parse")

    def __init__(self, parse: Parse, fds: List[int], is_sum: bool) -> None:
        self.parse = parse
        self.fds = fds
        self.is_sum = is_sum

    def read(self) -> List[Optional[int]]:
        """All values of the run; raises the error of the first file that fails."""
        parse = self.parse
        if self.is_sum:
            return [sum([parse(pread(fd, _MAX_BYTES, 0)) for fd in self.fds])]
        return [parse(pread(fd, _MAX_BYTES, 0)) for fd in self.fds]

    def singly(self) -> "List[_Run]":
        """The run's values as runs of one value each."""
        if self.is_sum:
            return [self]
        return [_Run(self.parse, [fd], False) for fd in self.fds]


class CounterFiles:
    """Open counter files in the order of their values."""

    def __init__(self, fs: HostFS) -> None:
        self._fs = fs
        self._files: List[File] = []
        self._runs: List[_Run] = []

    def add(self, *paths: str, parse: Parse = int) -> bool:
        """Open files below the root whose sum is one value; False unless all of them open.

        A file that opens but cannot be read stays: each read reports why it has no value.
        """
        opened: List[File] = []
        try:
            for path in paths:
                opened.append(self._fs.open(path))
        except OSError:
            for file in opened:
                file.close()
            return False
        self._files += opened
        fds = [file.fd for file in opened]
        is_sum = len(paths) > 1
        last = self._runs[-1] if self._runs else None
        if last is None or is_sum or last.is_sum or last.parse is not parse:
            self._runs.append(_Run(parse, fds, is_sum))
        else:
            last.fds += fds
        return True

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The current values; one that cannot be read is None and has its reason in `faults`."""
        values: List[Optional[int]] = []
        for run in self._runs:
            try:
                values += run.read()
            except _READ_ERRORS:
                for single in run.singly():
                    try:
                        values += single.read()
                    except _READ_ERRORS as error:
                        faults[len(values)] = fault_reason(error)
                        values.append(None)
        return values

    def close(self) -> None:
        """Close the files and forget them."""
        for file in self._files:
            file.close()
        self._files = []
        self._runs = []


def fault_reason(error: Exception) -> str:
    """The word on the wire for the reason why a value is missing.

    A text where a number is expected (`N/A (no PMA)`) is how older kernels report no counter.
    """
    if isinstance(error, SourceError):
        return error.reason
    if isinstance(error, OSError):
        return from_oserror(error).reason
    return Unsupported.reason


class FileSource(Source):
    """Base of sources whose values are files that stay open, one or a sum of several per value.

    A subclass fills `_files` in `discover`, in the order of its metrics.
    """

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._files = CounterFiles(host)

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The files' values; a file that fails loses its own value only."""
        return self._files.read(faults)

    def signature(self) -> object:
        """Changes when an interface or an RDMA device appears, goes away or is replaced."""
        return ports.signature(self.host)

    def close(self) -> None:
        """Close every file."""
        self._files.close()
