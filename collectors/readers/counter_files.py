"""Counter files that are read together, each tick, into a list by position.

This is the hot path of the node half: one `pread` and one parse a counter. After a second of sleep
every cache is cold, so it touches as little memory as it can: numbers of descriptors in a list.
"""

from __future__ import annotations

from os import pread
from typing import Callable, List, Optional, Tuple

from collectors.hostfs import File, HostFS
from collectors.readers import ports
from collectors.source import Faults, Source, SourceError, Unsupported, from_oserror

_LONGEST = 64
"""Bytes of the longest value, with room: 20 digits, `400 Gb/sec (4X NDR)`, `N/A (no PMA)`."""

_TROUBLE = (OSError, ValueError, SourceError)

Parse = Callable[[bytes], int]
"""Bytes of a file -> a value. Raises ValueError, or SourceError with the reason."""


class _Run:
    """Files next to each other that are parsed alike. A sum is a run of its own."""

    __slots__ = ("fds", "is_sum", "parse")

    def __init__(self, parse: Parse, fds: List[int], is_sum: bool) -> None:
        self.parse = parse
        self.fds = fds
        self.is_sum = is_sum

    def read(self) -> List[Optional[int]]:
        """All values of the run; raises what the first file that fails raises."""
        parse = self.parse
        if self.is_sum:
            return [sum([parse(pread(fd, _LONGEST, 0)) for fd in self.fds])]
        return [parse(pread(fd, _LONGEST, 0)) for fd in self.fds]

    def singly(self) -> "List[_Run]":
        """The run's values as runs of one value each."""
        if self.is_sum:
            return [self]
        return [_Run(self.parse, [fd], False) for fd in self.fds]


class CounterFiles:
    """Open counter files in the order of the values they become."""

    def __init__(self, fs: HostFS) -> None:
        self._fs = fs
        self._files: List[File] = []
        self._runs: List[_Run] = []

    def add(self, path: str, parse: Parse = int) -> bool:
        """Take the file at `path`, below the root; False when it is not there or may not be opened.

        A file that opens but refuses to be read stays: each read says why it has no value.
        """
        return self._take((path,), parse, is_sum=False)

    def add_sum(self, paths: Tuple[str, ...], parse: Parse = int) -> bool:
        """Take several files whose sum is one value; False unless all of them are there."""
        return self._take(paths, parse, is_sum=len(paths) > 1)

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The values now; one that cannot be had is None and has its reason in `faults`."""
        values: List[Optional[int]] = []
        for run in self._runs:
            try:
                values += run.read()
            except _TROUBLE:
                for single in run.singly():
                    try:
                        values += single.read()
                    except _TROUBLE as error:
                        faults[len(values)] = fault_reason(error)
                        values.append(None)
        return values

    def close(self) -> None:
        """Give the files back and forget them."""
        for file in self._files:
            file.close()
        self._files = []
        self._runs = []

    def _take(self, paths: Tuple[str, ...], parse: Parse, *, is_sum: bool) -> bool:
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
        last = self._runs[-1] if self._runs else None
        if last is None or is_sum or last.is_sum or last.parse is not parse:
            self._runs.append(_Run(parse, fds, is_sum))
        else:
            last.fds += fds
        return True


def fault_reason(error: Exception) -> str:
    """The word on the wire for why a value is missing.

    A text where a number belongs (`N/A (no PMA)`) is how older kernels say that they have none.
    """
    if isinstance(error, SourceError):
        return error.reason
    if isinstance(error, OSError):
        return from_oserror(error).reason
    return Unsupported.reason


# The base of sources whose values are files that stay open, one or a sum of several a value.


class FileSource(Source):
    """Reads `_cells`, which a subclass fills in `discover`, in the order of its metrics."""

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._cells = CounterFiles(host)

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The files' values; a file that fails costs its own value."""
        return self._cells.read(faults)

    def signature(self) -> object:
        """Changes when an interface or an RDMA device comes, goes or is replaced."""
        return ports.signature(self.host)

    def close(self) -> None:
        """Close every file."""
        self._cells.close()
