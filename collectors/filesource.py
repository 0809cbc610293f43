"""The base of sources whose values are files that stay open, one or a sum of several a value."""

from __future__ import annotations

from typing import List, Optional

from collectors import ports
from collectors.cells import Cells
from collectors.hostfs import HostFS
from collectors.source import Faults, Source


class FileSource(Source):
    """Reads `_cells`, which a subclass fills in `discover`, in the order of its metrics."""

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._cells = Cells(host)

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The files' values; a file that fails costs its own value."""
        return self._cells.read(faults)

    def signature(self) -> object:
        """Changes when an interface or an RDMA device comes, goes or is replaced."""
        return ports.signature(self.host)

    def close(self) -> None:
        """Close every file."""
        self._cells.close()
