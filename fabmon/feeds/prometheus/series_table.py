"""Series of Prometheus as nodes of the wire: which value belongs where in the frame of which node.

A series gets a slot in one flat array when it is first seen, and keeps it. Each round of queries
stores the values of each metric at once, and all frames are read from the array at once. Labels are
parsed only when a result has other series than the round before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from collectors import wire
from collectors.coverage import Coverage, summary
from fabmon.fabric.names import natural
from fabmon.fabric.port_source import with_shared_ports
from fabmon.fabric.wire.messages import Hello, clean, decode
from fabmon.feeds.learned_refresh import LearnedRefresh
from fabmon.feeds.prometheus.metric_names import (
    INSTANCE_LABEL,
    NODE_LABEL,
    KnownMetric,
    agent_series,
)
from fabmon.feeds.prometheus.responses import ExportedSamples, parse_exported_labels, parse_labels
from fabmon.feeds.prometheus.series_slots import UNUSED, BlockKey, ReadTimes, SeriesSlots
from fabmon.feeds.prometheus.target_blocks import (
    AgentBlock,
    PageBlock,
    PageInterpreter,
    SeriesBlock,
)
from fabmon.feeds.prometheus.target_budgets import TargetBudgets
from fabmon.feeds.scrape.page_reader import Indices, to_wire_integers, wraps_at_32_bits
from fabmon.feeds.scrape.text_format import Floats

_MOST_NODES = 16_384
"""Nodes that were ever seen: 10,000 were measured."""
_MOST_OF_NODE = 65_536
"""Series of a node: one more than a hello may have, so that the node is refused."""
_MOST_BLOCKS = 262_144
_MOST_UNUSED = 65_536
"""Labels of series that are not used and are kept, so that they are not parsed again."""

_NAMES_SHOWN = 10

FrameBlocks = list[list[int | None] | None]


class _Span(NamedTuple):
    """A block and the range of its values among those picked."""

    key: BlockKey
    block: SeriesBlock
    start: int
    stop: int


class SeriesTable:
    """The values of all series, and the targets and blocks that they belong to.

    `node` is the label that names a target, `wanted` the nodes to keep, None for all. `relabelled`
    are targets whose label `node` was added by Prometheus, so that it names no other node.
    `coverage` is by exporter what of its metrics on the server is not read, of whatever target.
    `changed` are targets with a new hello; the caller that sends the hellos clears them.
    `left_out` is the number of series that were left out because there are too many. `budgets` is
    what the series of targets may cost.
    """

    def __init__(
        self, node: str, interpreter: PageInterpreter, wanted: frozenset[str] | None = None
    ) -> None:
        self.node = node
        self.wanted = wanted
        self.relabelled: set[str] = set()
        self.coverage: Mapping[str, Coverage] = {}
        self.changed: set[str] = set()
        self.left_out = 0
        self.budgets = TargetBudgets()
        self._full: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._interpreter = interpreter
        self._facts: dict[tuple[str, str | None, str | None], Mapping[str, object]] = {}
        self._blocks: dict[str, dict[str, SeriesBlock]] = {}
        self._series = SeriesSlots()
        self._exported: dict[bytes, int] = {}
        self._slots: dict[str, dict[bytes, int]] = {}
        self._last: dict[str, tuple[list[bytes], Indices]] = {}
        self._spans: list[_Span] = []
        self._picked: Indices = np.empty(0, np.intp)
        self._factors: Floats = np.empty(0)
        self._wraps: NDArray[np.bool_] = np.empty(0, np.bool_)
        self._refreshes: dict[BlockKey, LearnedRefresh] = {}

    def empty_copy(self) -> SeriesTable:
        """A table with the same targets and facts, without series."""
        copy = SeriesTable(self.node, self._interpreter, self.wanted)
        copy.relabelled = self.relabelled
        copy.coverage = self.coverage
        copy._facts = self._facts
        return copy

    @property
    def size(self) -> int:
        """The number of series."""
        return self._series.used

    @property
    def targets(self) -> Iterable[str]:
        """The names of all targets ever seen."""
        return self._blocks.keys()

    def is_agents(self, key: BlockKey) -> bool:
        """Whether a block is a source of an agent, and not the page of another exporter."""
        return isinstance(self._blocks.get(key[0], {}).get(key[1]), AgentBlock)

    def blocks(self, target: str) -> Iterable[str]:
        """The names of a target's blocks."""
        return self._blocks[target].keys()

    def target(self, labels: Mapping[str, str]) -> str:
        """The node that labels name, without a port; empty for one that is not watched.

        With `wanted`, the name is as it is there, even where Prometheus has a domain after it.
        """
        name = clean(without_port(labels.get(self.node, "")))
        if self.wanted is None or name in self.wanted:
            return name
        short = name.partition(".")[0]
        return short if short in self.wanted else ""

    def learn(
        self, target: str, other: str | None, port: str | None, facts: Mapping[str, object]
    ) -> None:
        """Set facts of a port, of the target or of node `other`; without a port, of the target."""
        key = (target, other, port)
        if target and self._facts.get(key) != facts:
            self._facts[key] = facts
            if target in self._blocks:
                self.changed.add(target)

    def count(self, metric: KnownMetric) -> int:
        """The number of series of a metric that are used."""
        return len(self._series.of(metric))

    def blocks_with(self, metric: KnownMetric) -> set[BlockKey]:
        """The blocks that have a series of a metric."""
        return self._series.blocks_with(metric)

    def clear(self) -> None:
        """Set all values to none; the slots remain."""
        self._series.clear()

    def store(self, metric: KnownMetric, keys: list[bytes], values: Floats) -> None:
        """Store the result of a query for a metric: the labels of its series, and values.

        Fast for the same keys as in the last call.
        """
        last = self._last.get(metric.name)
        if last is None or last[0] != keys:
            last = self._last[metric.name] = (keys, self._slots_with(metric, keys))
        self._series.store(last[1], values)

    def store_unusual(
        self, metric: KnownMetric, usual: float, keys: list[bytes], values: Floats
    ) -> None:
        """Store the result of a query for the series of a metric that have another value than
        `usual`: all others that the last full result had have that one."""
        last = self._last.get(metric.name)
        self._series.store(self._series.of(metric) if last is None else last[1], usual)
        self.store_some(metric, keys, values)

    def store_some(self, metric: KnownMetric, keys: list[bytes], values: Floats) -> None:
        """Store the values of some series of a metric."""
        self._series.store(self._slots_with(metric, keys), values)

    def _slots_with(self, metric: KnownMetric, keys: list[bytes]) -> Indices:
        """The slots of series of a metric, by their labels."""
        known = self._slots.setdefault(metric.name, {})
        self._forget_unused(known)
        for key in keys:
            if key not in known:
                known[key] = self._new_slot(metric, parse_labels(key))
        return np.array([known[key] for key in keys], np.intp)

    def _forget_unused(self, known: dict[bytes, int]) -> None:
        """Forget series that are not used where there are too many: a server may have others in
        each result."""
        if len(known) > self._series.size + _MOST_UNUSED:
            for key in [key for key, slot in known.items() if slot == UNUSED]:
                del known[key]

    def store_exported(
        self, metrics: Mapping[str, KnownMetric], labels: Sequence[str], samples: ExportedSamples
    ) -> None:
        """Store exported samples of some metrics, by name; the newest of each series counts.

        `labels` are those of the keys, the metric's name first.
        """
        self._forget_unused(self._exported)
        slots = np.array([self._exported.get(key, -1) for key in samples.keys], np.intp)
        for place in np.flatnonzero(slots < 0).tolist():
            key = samples.keys[place]
            slot = self._exported.get(key)
            if slot is None:
                slot = self._exported[key] = self._new_exported(metrics, labels, key)
            slots[place] = slot
        order = np.argsort(samples.times_s, kind="stable")
        self._series.store(slots[order], samples.values[order], samples.times_s[order])

    def _new_exported(
        self, metrics: Mapping[str, KnownMetric], labels: Sequence[str], key: bytes
    ) -> int:
        found = parse_exported_labels(key, labels)
        metric = metrics.get(found.pop("__name__", "")) if found else None
        if found is None or metric is None:
            return UNUSED
        known = {self.node, *metric.labels, *(() if metric.is_agents else (INSTANCE_LABEL,))}
        return self._new_slot(metric, {name: found[name] for name in known & found.keys()})

    def exported_times(self) -> tuple[ReadTimes, set[BlockKey]]:
        """The time of the newest samples of each block, and the blocks of which series that had a
        value in the last round have none of that time."""
        return self._series.exported_times()

    def hello(self, target: str, about: Mapping[str, object], every: Mapping[str, int]) -> Hello:
        """The hello of a target. `every` is by block: the number of ticks between two reads.

        It is encoded and decoded again, because the decoder cleans the texts in it.
        """
        layouts = [
            wire.BlockLayout(
                block.source,
                every.get(name, 1),
                [self._with_facts(target, item) for item in block.objects],
            )
            for name, block in self._ordered(target)
        ]
        known = {"hostname": target, **self._facts.get((target, None, None), {})}
        covered = [
            (layout.source, self.coverage[exporter])
            for layout in layouts
            for exporter in layout.source.split("+")
            if exporter in self.coverage
        ]
        if covered:
            # For doctor, and for the page of the node.
            known["coverage"] = [each.describe(source) for source, each in covered]
        limits = [
            *((source, _not_read(each)) for source, each in covered),
            *((block.source, text) for _, block in self._ordered(target) for text in block.notes),
        ]
        if limits:
            known["limits"] = [{"source": source, "text": text} for source, text in limits]
        message = decode(wire.hello(with_shared_ports(layouts), {**about, **known}))
        assert isinstance(message, Hello)
        return message

    def refusal(self, target: str) -> str:
        """Why nothing is read of a target; empty where all is well. Call `settle` first."""
        refusals = (block.refusal for _, block in self._ordered(target))
        return self.budgets.refusal(target) or next(filter(None, refusals), "")

    def settle(self) -> None:
        """Interpret the series that were added; afterwards `changed` is complete."""
        self._take_again()
        if self.changed:
            for target in self.changed:
                with self.budgets.charged(target):
                    for block in self._blocks[target].values():
                        block.settle(self._series.values)
            self._lay_out()

    def _take_again(self) -> None:
        """Take the series that were left out of targets that are as they should be again."""
        has_room = {each for each in self._full if 2 * self._counts[each] <= _MOST_OF_NODE}
        again = self.budgets.recovered() | (has_room - self.budgets.overspent)
        if again:
            self._full -= again
            self.changed |= again & self._blocks.keys()
            for known in (*self._slots.values(), self._exported):
                for key in [key for key, slot in known.items() if slot == UNUSED]:
                    del known[key]
            self._last.clear()

    def frames(self, read_ns: Mapping[BlockKey, int]) -> dict[str, FrameBlocks]:
        """The blocks of each target that has one with a new read time in `read_ns`, in ns.

        Call `settle` first. Blocks without a new read time are None, and so are those whose
        exporter repeats its last snapshot.
        """
        values = self._series.values[self._picked] * self._factors
        for span in self._spans:
            computed = span.block.computed(self._series.values) if span.key in read_ns else None
            if computed is not None:
                values[span.start : span.stop] = computed
        self._count_misses(read_ns)
        integers = to_wire_integers(values, self._wraps)
        found: dict[str, FrameBlocks] = {}
        advanced = {target for target, _ in read_ns}
        for span in self._spans:
            target = span.key[0]
            if target in advanced:
                content: list[int | None] | None = None
                clock_ns = read_ns.get(span.key)
                numbers = integers[span.start : span.stop]
                if clock_ns is not None:
                    content = self._sample(span, numbers, clock_ns)
                found.setdefault(target, []).append(content)
        return found

    def continue_clocks(self, past: SeriesTable) -> None:
        """Continue to compute the age of snapshots from the samples of a table of the past."""
        self.settle()
        for (target, name), clock in past._refreshes.items():
            now = self._blocks.get(target, {}).get(name)
            before = past._blocks.get(target, {}).get(name)
            if now is not None and before is not None and now.objects == before.objects:
                self._refreshes[target, name] = clock

    def sweep(self) -> None:
        """Drop the series that were missing too often; adds their targets to `changed`."""
        of_block = self._series.drop_missing()
        if not of_block:
            return
        for (target, name), slots in of_block.items():
            self._counts[target] -= len(slots)
            block = self._blocks.get(target, {}).get(name)
            if block is not None:
                # All at once: a block goes through all of its series.
                block.drop(slots)
                self.changed.add(target)
                if block.is_empty:
                    del self._blocks[target][name]
        gone = set().union(*of_block.values())
        for known in (*self._slots.values(), self._exported):
            for key in [key for key, slot in known.items() if slot in gone]:
                del known[key]
        self._last.clear()

    def _ordered(self, target: str) -> list[tuple[str, SeriesBlock]]:
        return sorted(self._blocks[target].items(), key=lambda item: natural(item[0]))

    def _with_facts(self, target: str, item: wire.Object) -> wire.Object:
        facts = self._facts.get((target, item.node, item.port))
        return item._replace(info={**item.info, **facts}) if facts else item

    def _new_slot(self, metric: KnownMetric, labels: dict[str, str]) -> int:
        """A slot for a series never seen before."""
        target = self.target(labels)
        if not target or target in self.budgets.overspent or not self._has_room(target):
            return UNUSED
        if not metric.is_agents:
            instance = labels.pop(INSTANCE_LABEL, "")
            labels.pop(self.node, None)
            blocks = self._blocks.setdefault(target, {})
            page = blocks.setdefault(instance, PageBlock(self._interpreter))
            assert isinstance(page, PageBlock)
            slot = self._take_slot(metric, target, instance)
            page.add(slot, metric.name, labels)
            return slot
        # A new target is most likely relabelled if the others are.
        is_new = (target, None, None) not in self._facts
        if target in self.relabelled or (is_new and self.relabelled):
            labels.pop(NODE_LABEL, None)
        series = agent_series(metric.name, labels)
        if series is None:
            return UNUSED
        blocks = self._blocks.setdefault(target, {})
        block = blocks.setdefault(series.source, AgentBlock(series.source))
        if not isinstance(block, AgentBlock) or block.has(series):
            return UNUSED
        slot = self._take_slot(metric, target, series.source)
        block.add(slot, series)
        return slot

    def _has_room(self, target: str) -> bool:
        is_full = self._counts[target] > _MOST_OF_NODE
        if is_full:
            self._full.add(target)
        has_room = (
            not is_full
            and self._series.blocks < _MOST_BLOCKS
            and (target in self._blocks or len(self._blocks) < _MOST_NODES)
        )
        self.left_out += not has_room
        return has_room

    def _take_slot(self, metric: KnownMetric, target: str, name: str) -> int:
        self._counts[target] += 1
        self.changed.add(target)
        return self._series.take(metric, (target, name))

    def _lay_out(self) -> None:
        """Concatenate the values of all blocks."""
        self._spans = []
        start = 0
        for target in self._blocks:
            for name, block in self._ordered(target):
                stop = start + len(block.picked)
                self._spans.append(_Span((target, name), block, start, stop))
                start = stop
        blocks = [span.block for span in self._spans]
        none: Indices = np.empty(0, np.intp)
        self._picked = np.concatenate([none, *(block.picked for block in blocks)])
        self._factors = np.concatenate([np.empty(0), *(block.factors for block in blocks)])
        self._wraps = wraps_at_32_bits(
            [name for block in blocks for item in block.objects for name in item.metrics]
        )

    def _sample(
        self, span: _Span, numbers: list[int | None], read_ns: int
    ) -> list[int | None] | None:
        """A block of a frame; None where the exporter serves its last snapshot again."""
        if isinstance(span.block, AgentBlock):
            return [read_ns, *numbers]
        refresh = self._refreshes.get(span.key)
        if refresh is None or refresh.refresh_s != span.block.refresh_s:
            refresh = LearnedRefresh(span.block.refresh_s, is_trusted=True)
            self._refreshes[span.key] = refresh
        sample = refresh.sample(span.block.objects, numbers, read_ns)
        return None if sample is None else [sample[0], *sample[1]]

    def _count_misses(self, read_ns: Mapping[BlockKey, int]) -> None:
        """Count the series without a value in the blocks that were read."""
        blocks = (self._blocks.get(target, {}).get(name) for target, name in read_ns)
        self._series.count_misses(block.slots for block in blocks if block is not None)


def _not_read(each: Coverage) -> str:
    """`dcgm_exporter: 1 of 3 counters read; not: DCGM_FI_DEV_A, DCGM_FI_DEV_B`."""
    names = ", ".join(each.unmapped[:_NAMES_SHOWN])
    more = len(each.unmapped) - _NAMES_SHOWN
    text = f"{each.driver}: {summary(each.seen, each.read)}; not: {names}"
    return f"{text} and {more} more" if more > 0 else text


def without_port(instance: str) -> str:
    """The host of an instance, `host:port`."""
    host, colon, port = instance.rpartition(":")
    if not colon or not port.isdecimal() or (":" in host and not host.startswith("[")):
        host = instance
    return host.removeprefix("[").removesuffix("]")
