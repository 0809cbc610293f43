"""What is checked of a frame's content as it is read, the same for every reader and for verify."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from fabmon.fabric.model import Host
from fabmon.fabric.wire.hello_limits import HelloLimits
from fabmon.fabric.wire.messages import Hello, WireError
from fabmon.recording.format.block import RowTicks
from fabmon.recording.format.errors import Damaged
from fabmon.recording.format.frames import FrameHeader, FrameKind
from fabmon.recording.format.minutes import MINUTE_NS
from fabmon.recording.format.records import (
    MOST_TICKS,
    EventsRecord,
    Note,
    NotedFinding,
    SessionRecord,
)

_WIDEST = Host(name="", via="exporters")
"""A node that may report others: which node a recorded hello is from does not matter here."""


def has_sound_times(header: FrameHeader) -> bool:
    """Whether a frame ends when it begins or later. An index lists frames in another order."""
    if header.kind == FrameKind.MINUTE and header.until_ns - header.time_ns != MINUTE_NS:
        return False
    return header.kind == FrameKind.INDEX or 0 <= header.time_ns <= header.until_ns


def check_ticks(header: FrameHeader, ticks: RowTicks) -> None:
    """Raise Damaged where the ticks of a block are not those of its header, in order."""
    times = ticks.time_ns
    if (times[0], times[-1]) != (header.time_ns, header.until_ns) or (np.diff(times) < 0).any():
        raise Damaged("the ticks of a block are not of the time in its header")
    if ticks.seq.min() < 0 or ticks.seq.max() > MOST_TICKS:
        raise Damaged("the ticks of a block have numbers that no feed counts to")


def check_record(header: FrameHeader, record: object) -> None:
    """Raise Damaged for a record that no fabmon writes, or of another time than its frame."""
    time_ns = header.time_ns
    if isinstance(record, Note):
        time_ns = record.time_ns
        try:
            msgspec.convert(record.finding, NotedFinding)
        except (msgspec.ValidationError, RecursionError) as error:
            raise Damaged(f"the finding of a note is not one: {error}") from None
    elif isinstance(record, EventsRecord):
        time_ns = record.time_ns
        _check_hellos(hello for _, hello in record.hellos)
    elif isinstance(record, SessionRecord):
        time_ns = record.started_ns
    elif isinstance(record, dict):
        _check_hellos(record.values())
    if time_ns != header.time_ns:
        raise Damaged("a record is of another time than its frame")


def _check_hellos(hellos: Iterable[Hello]) -> None:
    """Raise Damaged for a hello that no console would have accepted."""
    try:
        for hello in hellos:
            HelloLimits(_WIDEST).admit(hello)
    except WireError as error:
        raise Damaged(str(error)) from None
