"""A recorded day before the first scene, made from a few seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.snapshot import Snapshot
from fabmon.recording.format.frames import FrameKind
from fabmon.recording.format.minutes import MINUTE_NS, MinuteBuilder
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.format.sections import compress
from fabmon.recording.reading.reader import Recording
from fabmon.recording.writing.frame_writer import FrameWriter, PendingFrame
from fabmon.recording.writing.writer import Writer

_TRAFFIC = [HEAT.index("tx_bps"), HEAT.index("rx_bps")]


def write_day(
    path: Path,
    session: SessionRecord,
    moments: Sequence[Snapshot],
    minutes: int,
    gap: range = range(0),
) -> Path:
    """Minutes up to the first snapshot, alternately busier and less busy for 3 h each.

    Of those of `gap`, counted from the end, nothing is there. There are no ticks.
    """
    scratch = path.with_suffix(".scratch")
    writer = Writer.create(scratch, session)
    writer.close()
    with Recording(scratch) as recording:
        pieces = [
            PendingFrame(
                FrameKind.SESSION,
                recording.payload(each),
                each.header.time_ns,
                each.header.until_ns,
            )
            for each in recording.entries()
            if each.header.kind == FrameKind.SESSION
        ]
    scratch.unlink()
    end_ns = moments[0].time_ns // MINUTE_NS * MINUTE_NS
    start_ns = end_ns - minutes * MINUTE_NS
    pieces.append(PendingFrame(FrameKind.TOPOLOGY, _topology(moments[-1]), start_ns, start_ns))
    maker = MinuteBuilder()
    for back in range(minutes, -1, -1):
        turn = np.float32(0.55 + 0.45 * np.sin(back * 2 * np.pi / 180))
        heat = moments[back % len(moments)].heat.copy()
        heat[_TRAFFIC] *= turn
        at_ns = end_ns - back * MINUTE_NS
        done = maker.add(replace(moments[-1], time_ns=at_ns, heat=heat))
        if done is not None and back + 1 not in gap:
            pieces.append(PendingFrame(FrameKind.MINUTE, done[1], done[0], done[0] + MINUTE_NS))
    store = FrameWriter(path)
    store.settle(pieces)
    store.write_index()
    store.close()
    return path


def _topology(snapshot: Snapshot) -> bytes:
    """The tiers as the writer makes them."""
    ports = [
        [port.row, port.node, port.name, port.label, port.role, port.kind, port.peer]
        for port in snapshot.fabric.ports
    ]
    names = ("row", "node", "name", "label", "role", "kind", "peer")
    description = {
        "version": 1,
        "ports": [dict(zip(names, port, strict=True)) for port in ports],
        "groups": [],
    }
    return compress(msgspec.json.encode(description))
