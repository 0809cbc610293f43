"""Counter files that are read together, each tick, into a list by position.

This is the hot path of the node half: one `pread` and one parse a counter, no formatting, no
per-tick allocation beyond the values.
"""

from __future__ import annotations

from typing import Callable, List, Optional, Tuple

from collectors.hostfs import File, HostFS
from collectors.source import Faults, SourceError, Unsupported, from_oserror

_LONGEST = 64
"""Bytes of the longest value, with room: 20 digits, `400 Gb/sec (4X NDR)`, `N/A (no PMA)`."""

Parse = Callable[[bytes], int]
"""Bytes of a file -> a value. Raises ValueError, or SourceError with the reason."""


class Cells:
    """Open counter files in the order of the values they become."""

    def __init__(self, fs: HostFS) -> None:
        self._fs = fs
        self._files: List[File] = []
        self._cells: List[Tuple[Callable[[], bytes], Parse]] = []

    def __len__(self) -> int:
        return len(self._cells)

    def add(self, path: str, parse: Parse = int) -> bool:
        """Take the file at `path`, below the root; False when it is not there or may not be opened.

        A file that opens but refuses to be read stays: each read says why it has no value.
        """
        return self.add_sum((path,), parse)

    def add_sum(self, paths: Tuple[str, ...], parse: Parse = int) -> bool:
        """Take several files whose sum is one value; False unless all of them are there."""
        opened: List[File] = []
        try:
            for path in paths:
                opened.append(self._fs.open(path))
        except OSError:
            for file in opened:
                file.close()
            return False
        self._files.extend(opened)
        if len(opened) == 1:
            self._cells.append((opened[0].reader(_LONGEST), parse))
        else:
            self._cells.append((_sum_of(opened), parse))
        return True

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The values now; one that cannot be had is None and has its reason in `faults`."""
        values: List[Optional[int]] = []
        append = values.append
        for read, parse in self._cells:
            try:
                append(parse(read()))
            except (OSError, ValueError, SourceError) as error:
                faults[len(values)] = reason_of(error)
                append(None)
        return values

    def close(self) -> None:
        """Give the files back and forget them."""
        for file in self._files:
            file.close()
        self._files = []
        self._cells = []


def reason_of(error: Exception) -> str:
    """The word on the wire for why a value is missing.

    A text where a number belongs (`N/A (no PMA)`) is how older kernels say that they have none.
    """
    if isinstance(error, SourceError):
        return error.reason
    if isinstance(error, OSError):
        return from_oserror(error).reason
    return Unsupported.reason


def _sum_of(files: List[File]) -> Callable[[], bytes]:
    def read() -> bytes:
        return b"%d" % sum(int(file.read()) for file in files)

    return read
