"""Sources by name, imported only when there is something for them to read.

The probe runs from memory and compiles every module that it imports: 5 ms each. The paths of
hardware that most machines lack (a GPU, a Slingshot NIC, SONiC's databases) are looked for first.
"""

from __future__ import annotations

import importlib
from typing import List, Optional, Sequence, Type

from collectors.hostfs import HostFS
from collectors.registry import SOURCES
from collectors.source import Faults, Logged, NoData, Source
from collectors.wire import Object


def make_source(name: str, host: HostFS) -> Source:
    """The source called `name` for a host; deferred where it needs a path. Raises KeyError."""
    return DeferredSource(host, name) if SOURCES[name].needs else load_source(name)(host)


def load_source(name: str) -> Type[Source]:
    """Import the class of the source called `name`. Raises KeyError when there is none."""
    module, _, attribute = SOURCES[name].factory.partition(":")
    source: Type[Source] = getattr(importlib.import_module(module), attribute)
    return source


class DeferredSource(Source):
    """Takes the place of a source that is not imported until one of the paths it needs exists."""

    def __init__(self, host: HostFS, name: str) -> None:
        super().__init__(host)
        self.name = name
        self._source: Optional[Source] = None

    def discover(self) -> List[Object]:
        """The source's objects. Raises NoData while none of the paths exists."""
        if self._source is None:
            if not self._has_hardware():
                raise NoData(f"no /{' nor /'.join(SOURCES[self.name].needs)}")
            self._source = load_source(self.name)(self.host)
        try:
            objects = self._source.discover()
        finally:
            self.coverage, self.limits = self._source.coverage, self._source.limits
        self.every = self._source.every
        self.deadline_s = self._source.deadline_s
        self.min_period_s = self._source.min_period_s
        return objects

    def read(self, faults: Faults) -> List[Optional[int]]:
        """The source's values. Raises NoData before a discovery has found the hardware."""
        if self._source is None:
            raise NoData("nothing was discovered")
        values = self._source.read(faults)
        self.values_ns = self._source.values_ns
        return values

    def logged(self) -> Sequence[Logged]:
        """What the source has logged."""
        return () if self._source is None else self._source.logged()

    def signature(self) -> object:
        """Changes when a path appears or disappears; once the source is loaded, its signature."""
        return self._has_hardware() if self._source is None else self._source.signature()

    def close(self) -> None:
        """Close what the source has opened."""
        if self._source is not None:
            self._source.close()

    def _has_hardware(self) -> bool:
        return any(self.host.exists(path) for path in SOURCES[self.name].needs)
