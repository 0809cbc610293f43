"""Series of an engine as nodes of the wire: which value goes where in whose frame.

A series gets a place in one flat array when it is first seen, and keeps it. A look writes each
metric's values to their places at once, and reads all frames from there at once; labels are looked
at again only when an answer holds other ones than the time before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collectors import wire
from collectors.catalog import CATALOG, WRAP32
from fabmon.fabric.names import natural
from fabmon.fabric.wire.messages import Hello, clean, decode
from fabmon.feeds.prometheus.metric_names import NODE_LABEL, KnownMetric, agent_series
from fabmon.feeds.prometheus.responses import Floats, labels
from fabmon.feeds.prometheus.target_blocks import (
    AgentBlock,
    Indices,
    PageBlock,
    PageInterpreter,
    SeriesBlock,
)

INSTANCE = "instance"
"""The label that tells an exporter's pages apart; targets may be named by another one."""

_NOWHERE = 0
"""The place of what is not wanted, and of what has a place already."""

_MISSES = 5
"""Reads of its source that a series may be missing from, until it is gone."""

_TOP = float(1 << 64)
_MASK32 = np.uint64((1 << 32) - 1)

BlockKey = tuple[str, str]
"""A target and one of its units: a source of its agent, or the instance of an exporter's page."""

FrameBlocks = list[list[int | None] | None]


class _Span(NamedTuple):
    """A unit, and the range of its values among the picked."""

    key: BlockKey
    start: int
    stop: int


class SeriesTable:
    """Places of series, and the nodes that they make up.

    `node` is the label that names a target, `wanted` the nodes to keep, None for all. `relabelled`
    are targets whose label `node` the engine gave them: it names nobody else. `changed` are targets
    whose hello is a new one; whoever says it clears them.
    """

    def __init__(
        self, node: str, pages: PageInterpreter, wanted: frozenset[str] | None = None
    ) -> None:
        self.node = node
        self.wanted = wanted
        self.relabelled: set[str] = set()
        self.changed: set[str] = set()
        self._pages = pages
        self._facts: dict[tuple[str, str | None, str | None], Mapping[str, object]] = {}
        self._units: dict[str, dict[str, SeriesBlock]] = {}
        self._values: Floats = np.full(1, np.nan)
        self._misses: NDArray[np.uint8] = np.zeros(1, np.uint8)
        self._size = 1
        self._known: dict[str, dict[bytes, int]] = {}
        self._last: dict[str, tuple[list[bytes], Indices]] = {}
        self._owner: list[BlockKey] = [("", "")]
        self._spans: list[_Span] = []
        self._picked: Indices = np.empty(0, np.intp)
        self._factors: Floats = np.empty(0)
        self._wraps: NDArray[np.bool_] = np.empty(0, np.bool_)
        self._repeats: dict[BlockKey, tuple[list[int | None], int]] = {}

    def another(self) -> SeriesTable:
        """A table of the same targets, which knows the same facts of them, and no series yet."""
        other = SeriesTable(self.node, self._pages, self.wanted)
        other.relabelled = self.relabelled
        other._facts = self._facts
        return other

    @property
    def targets(self) -> Iterable[str]:
        """The names of all that were ever seen."""
        return self._units.keys()

    def units(self, target: str) -> Iterable[str]:
        """The units of a target."""
        return self._units[target].keys()

    def target(self, said: Mapping[str, str]) -> str:
        """The node that a series' labels name, its port left out; empty for one not watched.

        With nodes to keep, the name is as it is there, also where the engine has a domain behind.
        """
        name = clean(without_port(said.get(self.node, "")))
        if self.wanted is None or name in self.wanted:
            return name
        short = name.partition(".")[0]
        return short if short in self.wanted else ""

    def learn(
        self, target: str, other: str | None, port: str | None, facts: Mapping[str, object]
    ) -> None:
        """Facts about a port of the target or of another node; about the target for no port."""
        key = (target, other, port)
        if target and self._facts.get(key) != facts:
            self._facts[key] = facts
            if target in self._units:
                self.changed.add(target)

    def count(self, sense: KnownMetric) -> int:
        """How many series of a metric have a place."""
        return sum(place != _NOWHERE for place in self._known.get(sense.name, {}).values())

    def coverage(self, sense: KnownMetric) -> set[BlockKey]:
        """The units that have a metric."""
        places = set(self._known.get(sense.name, {}).values()) - {_NOWHERE}
        return {self._owner[place] for place in places} - {("", "")}

    def clear(self) -> None:
        """Forget all values; the places stay."""
        self._values[:] = np.nan

    def places(self, sense: KnownMetric, keys: list[bytes]) -> Indices:
        """The places of an answer's series. Fast for the same keys as the last time."""
        last = self._last.get(sense.name)
        if last is not None and last[0] == keys:
            return last[1]
        known = self._known.setdefault(sense.name, {})
        found = [known.get(key) for key in keys]
        places = np.array(
            [
                self._new(sense, key, known) if place is None else place
                for key, place in zip(keys, found, strict=True)
            ],
            np.intp,
        )
        self._last[sense.name] = (keys, places)
        return places

    def put(self, places: Indices, values: Floats) -> None:
        """Write values, in the engine's unit, to their places."""
        self._values[places] = values
        self._values[_NOWHERE] = np.nan

    def hello(self, target: str, about: Mapping[str, object], every: Mapping[str, int]) -> Hello:
        """A target's hello, by the wire and back: its texts are data, and cleaned there.

        `every` is by unit: the ticks from one read of it to the next.
        """
        layouts = [
            wire.BlockLayout(
                unit.source,
                every.get(name, 1),
                [self._informed(target, item) for item in unit.objects()],
            )
            for name, unit in self._ordered(target)
        ]
        known = {"hostname": target, **self._facts.get((target, None, None), {})}
        message = decode(wire.hello(layouts, {**about, **known}))
        assert isinstance(message, Hello)
        return message

    def settle(self) -> None:
        """Work out what the series are that came since the last time: `changed` is complete."""
        if self.changed:
            for target in self.changed:
                for unit in self._units[target].values():
                    unit.settle(self._values)
            self._pick()

    def frames(self, clocks: Mapping[BlockKey, int]) -> dict[str, FrameBlocks]:
        """The blocks of each target of which some unit has a new clock, in ns. `settle` first.

        Units without a new clock are null, and those that their exporter merely repeats.
        """
        values = self._values[self._picked] * self._factors
        for span in self._spans:
            unit = self._units[span.key[0]][span.key[1]]
            if unit.joins and span.key in clocks:
                values[span.start : span.stop] = unit.joined(self._values)
        absent = ~((values >= 0) & (values < _TOP))
        self._count_misses(clocks)
        whole = np.rint(np.where(absent, 0, values)).astype(np.uint64)
        whole[self._wraps] &= _MASK32
        integers: list[int | None] = whole.tolist()
        for gap in np.flatnonzero(absent).tolist():
            integers[gap] = None
        found: dict[str, FrameBlocks] = {}
        advanced = {target for target, _ in clocks}
        for span in self._spans:
            if span.key[0] in advanced:
                content: list[int | None] | None = None
                clock = clocks.get(span.key)
                if clock is not None and not self._repeated(span, integers, clock):
                    content = [clock, *integers[span.start : span.stop]]
                found.setdefault(span.key[0], []).append(content)
        return found

    def sweep(self) -> None:
        """Drop the series that were missing too often; their targets are in `changed` then."""
        gone = set(np.flatnonzero(self._misses[: self._size] >= _MISSES).tolist())
        if not gone:
            return
        for place in gone:
            self._misses[place] = 0
            target, name = self._owner[place]
            self._owner[place] = ("", "")
            unit = self._units.get(target, {}).get(name)
            if unit is not None:
                unit.drop(place)
                self.changed.add(target)
                if unit.is_empty:
                    del self._units[target][name]
        for known in self._known.values():
            for key in [key for key, place in known.items() if place in gone]:
                del known[key]
        self._last.clear()

    def _ordered(self, target: str) -> list[tuple[str, SeriesBlock]]:
        return sorted(self._units[target].items(), key=lambda item: natural(item[0]))

    def _informed(self, target: str, item: wire.Object) -> wire.Object:
        more = self._facts.get((target, item.node, item.port))
        return item._replace(info={**item.info, **more}) if more else item

    def _new(self, sense: KnownMetric, key: bytes, known: dict[bytes, int]) -> int:
        """A place for a series never seen before."""
        said = labels(key)
        target = self.target(said)
        place = self._settled_at(target, sense, said) if target else _NOWHERE
        known[key] = place
        return place

    def _settled_at(self, target: str, sense: KnownMetric, said: dict[str, str]) -> int:
        if not sense.is_agents:
            instance = said.pop(INSTANCE, "")
            said.pop(self.node, None)
            page = self._units.setdefault(target, {}).setdefault(instance, PageBlock(self._pages))
            assert isinstance(page, PageBlock)
            at = self._room(target, instance)
            page.add(at, sense.name, said)
            return at
        # Of a target that is new, the engine most likely makes what it makes of the others.
        is_new = (target, None, None) not in self._facts
        if target in self.relabelled or (is_new and self.relabelled):
            said.pop(NODE_LABEL, None)
        place = agent_series(sense.name, said)
        if place is None:
            return _NOWHERE
        unit = self._units.setdefault(target, {}).setdefault(place.source, AgentBlock(place.source))
        if not isinstance(unit, AgentBlock) or unit.has(place):
            return _NOWHERE
        at = self._room(target, place.source)
        unit.add(at, place)
        return at

    def _room(self, target: str, name: str) -> int:
        at = self._size
        self._size += 1
        if self._size > len(self._values):
            more = len(self._values) + 64
            self._values = np.concatenate([self._values, np.full(more, np.nan)])
            self._misses = np.concatenate([self._misses, np.zeros(more, np.uint8)])
        self._owner.append((target, name))
        self.changed.add(target)
        return at

    def _pick(self) -> None:
        """Lay out all frames one behind the other."""
        picked: list[Indices] = [np.empty(0, np.intp)]
        factors: list[Floats] = [np.empty(0)]
        wraps: list[bool] = []
        self._spans = []
        at = 0
        for target in self._units:
            for name, unit in self._ordered(target):
                places, factor = unit.picked()
                picked.append(places)
                factors.append(factor)
                wraps += [CATALOG[metric].kind == WRAP32 for metric in unit.metrics()]
                self._spans.append(_Span((target, name), at, at + len(places)))
                at += len(places)
        self._picked = np.concatenate(picked)
        self._factors = np.concatenate(factors)
        self._wraps = np.array(wraps, np.bool_)

    def _repeated(self, span: _Span, integers: list[int | None], clock: int) -> bool:
        """Whether a unit whose exporter keeps its answers for a while says its last one again."""
        refresh_s = self._units[span.key[0]][span.key[1]].refresh_s
        if not refresh_s:
            return False
        content = integers[span.start : span.stop]
        before, since = self._repeats.get(span.key, ([], 0))
        if content == before and clock - since < refresh_s * 1e9:
            return True
        self._repeats[span.key] = (content, clock)
        return False

    def _count_misses(self, clocks: Mapping[BlockKey, int]) -> None:
        """Only a read of its unit can miss a series."""
        read = np.zeros(self._size, np.bool_)
        for target, name in clocks:
            unit = self._units.get(target, {}).get(name)
            if unit is not None:
                read[unit.places()] = True
        absent = np.isnan(self._values[: self._size])
        misses = self._misses[: self._size]
        misses[read & ~absent] = 0
        missed = read & absent
        misses[missed] = np.minimum(misses[missed] + 1, _MISSES)


def without_port(instance: str) -> str:
    """The host of an instance."""
    host, colon, port = instance.rpartition(":")
    if not colon or not port.isdigit() or (":" in host and not host.startswith("[")):
        host = instance
    return host.removeprefix("[").removesuffix("]")
