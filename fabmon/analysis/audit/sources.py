"""The state of each source of each node: works, absent, unsupported, not permitted, too slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from collectors.coverage import summary
from fabmon.analysis.audit.survey import Survey
from fabmon.fabric.wire.messages import BlockInfo, Coverage, Frame, Hello, Notice
from fabmon.fabric.wording import plural

WORKS = "works"
ABSENT = "absent"
SLOW = "too slow"

_STATES = {"denied": "not permitted", "late": SLOW}
"""Words for reasons of the wire protocol."""

_SLOW_US = 100_000
"""Microseconds; a read that takes longer is too slow: it is a tenth of the probe's second."""

IB_FABRIC, IB_FABRIC_HCAS = "ib_fabric", "ib_fabric_hcas"
"""The source of a whole InfiniBand fabric, and of its HCAs, which takes longer. Both are read in
rounds of seconds, and are on request alone."""

_BEING_READ = "is still being read: --duration 60s waits longer"
_PROBE = "probe"
_READ_US = "probe_read_us"


class SourceState(msgspec.Struct, frozen=True, kw_only=True):
    """One source of one node.

    `state` is `works`, `absent` (nothing of its kind there), `unsupported`, `not permitted`,
    `failed` or `too slow`; `text` says why, and what would help. `objects` and `values` count what
    it reads, `missing` the values that are absent now; `read_ms` is what a read takes, None when
    the node does not say. `text` names the drivers of which no counter is known, or whose counters
    are read by pattern, and what is not observable although nothing failed.
    """

    source: str
    state: str
    text: str = ""
    objects: int = 0
    values: int = 0
    missing: int = 0
    read_ms: float | None = None


def source_states(survey: Survey, node: str) -> list[SourceState]:
    """The sources that were requested of a node, in its own order; none before its hello."""
    hello, frame = survey.hellos.get(node), survey.frames.get(node)
    if hello is None:
        return []
    read_us = dict(_read_times(hello, frame))
    lost = {
        notice.source: notice
        for notice in survey.notices.get(node, ())
        if notice.event == "lost" and not notice.object
    }
    blocks: dict[str, list[int]] = {}
    for place, block in enumerate(hello.blocks):
        blocks.setdefault(block.source, []).append(place)
    names = [*read_us, *(n for n in (*blocks, *lost) if n not in read_us and n != _PROBE)]
    states = []
    for name in dict.fromkeys(names):
        places = blocks.get(name, [])
        infos = [hello.blocks[place] for place in places]
        missing = _absent(frame, places)
        notice = lost.get(name)
        state = WORKS if infos else ABSENT
        text = _missing(survey.notices.get(node, ()), name) if missing else ""
        if not infos and (name == IB_FABRIC or (name == IB_FABRIC_HCAS and IB_FABRIC in blocks)):
            text = _BEING_READ
        if notice is not None:
            state, text = _STATES.get(notice.reason, notice.reason), notice.text
        elif (read_us.get(name) or 0) > _SLOW_US:
            state, text = SLOW, "its device or driver answers slowly"
        if notice is None:
            limits = [each.text for each in hello.limits or () if each.source == name]
            texts = (text, _facts(name, infos), *_unknown_drivers(hello, name), *limits)
            text = ", ".join(filter(None, texts))
        states.append(_state(name, state, text, infos, missing, read_us.get(name)))
    return states


def _facts(source: str, infos: Sequence[BlockInfo]) -> str:
    """What the objects are of a source that has no values: that there are some says little."""
    objects = [each for info in infos for each in info.objects]
    if source == "routes" and objects:
        kinds = Counter(each.kind for each in objects)
        groups = plural(kinds["ecmp"], "ECMP group")
        return f"{groups}, {plural(kinds['neighbour'], 'neighbour')}"
    if source == "dcb" and objects:
        states = Counter(str(each.info.get("pfc", "unknown")) for each in objects)
        return "PFC " + ", ".join(f"{state} on {count}" for state, count in sorted(states.items()))
    return ""


def _unknown_drivers(hello: Hello, source: str) -> Iterator[str]:
    """The drivers without a table whose counters a source saw."""
    for each in hello.coverage or ():
        if each.source == source and (text := unknown_driver(each)):
            yield text


def unknown_driver(each: Coverage) -> str:
    """`driver mana: 61 counters, names not known`; empty for a driver that is known."""
    if not each.seen or (each.read and not each.guessed):
        return ""
    return f"driver {each.driver}: {summary(each.seen, each.read, each.guessed)}"


def _absent(frame: Frame | None, places: Sequence[int]) -> int:
    """How many values of some blocks are absent now; a source may have several blocks."""
    blocks = [] if frame is None else [frame.blocks[place] for place in places]
    return sum(block.count(None) for block in blocks if block is not None)


def _missing(notices: Iterable[Notice], source: str) -> str:
    """Why values of a source are absent, as `2 failed, 1 unsupported`."""
    reasons = Counter(n.reason for n in notices if n.source == source and n.object and n.reason)
    return ", ".join(f"{count} {_STATES.get(why, why)}" for why, count in reasons.items())


def _state(
    name: str,
    state: str,
    text: str,
    infos: Sequence[BlockInfo],
    missing: int,
    read_us: int | None,
) -> SourceState:
    return SourceState(
        source=name,
        state=state,
        text=text,
        objects=sum(len(info.objects) for info in infos),
        values=sum(info.width() - 1 for info in infos),
        missing=missing,
        read_ms=None if read_us is None or not infos else round(read_us / 1000, 2),
    )


def _read_times(hello: Hello, frame: Frame | None) -> Iterator[tuple[str, int | None]]:
    """Each source that the probe was asked to read, and what its last read took, in us."""
    for place, block in enumerate(hello.blocks):
        if block.source == _PROBE:
            values = frame.blocks[place] if frame is not None else None
            position = 1
            for item in block.objects:
                if _READ_US in item.metrics:
                    yield item.id, None if values is None else values[position]
                position += len(item.metrics)
