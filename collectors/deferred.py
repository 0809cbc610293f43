"""A source that is not imported until there is something for it to read.

On a node the probe runs from memory and compiles every module that it imports: 5 ms each. What most
machines have not (a GPU, a Slingshot NIC, SONiC's databases) is looked for first.
"""

from __future__ import annotations

from typing import Callable, List, Optional, Sequence

from collectors.hostfs import HostFS
from collectors.source import Faults, NoData, Source
from collectors.wire import Object


class Deferred(Source):
    """Stands for the source that `make` makes, until one of the paths is there."""

    def __init__(
        self, host: HostFS, name: str, paths: Sequence[str], make: Callable[[HostFS], Source]
    ) -> None:
        super().__init__(host)
        self.name = name
        self._paths = paths
        self._make = make
        self._source: Optional[Source] = None

    def discover(self) -> List[Object]:
        """What the source finds. Raises NoData while none of the paths is there."""
        if self._source is None:
            if not self._there():
                raise NoData(f"no /{' nor /'.join(self._paths)}")
            self._source = self._make(self.host)
        objects = self._source.discover()
        self.every = self._source.every
        self.deadline_s = self._source.deadline_s
        self.min_period_s = self._source.min_period_s
        return objects

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The source's values."""
        if self._source is None:
            raise NoData("nothing was discovered")
        values = self._source.read(faults)
        self.values_ns = self._source.values_ns
        return values

    def signature(self) -> object:
        """Changes when a path comes or goes, then as the source's does."""
        return self._there() if self._source is None else self._source.signature()

    def close(self) -> None:
        """Give back what the source holds."""
        if self._source is not None:
            self._source.close()

    def _there(self) -> bool:
        return any(self.host.exists(path) for path in self._paths)
