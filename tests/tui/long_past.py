"""A day before the first scene: minutes as a recorder writes them, made of a few seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from fabmon.fabric.moment import HEAT, Moment
from fabmon.recording.frames import Kind
from fabmon.recording.minutes import MINUTE_NS, MinuteMaker
from fabmon.recording.reader import Recording
from fabmon.recording.records import SessionRecord
from fabmon.recording.store import Piece, Store
from fabmon.recording.writer import Writer
from fabmon.recording.zstd import compress

_TRAFFIC = [HEAT.index("tx_bps"), HEAT.index("rx_bps")]


def write_day(
    path: Path,
    session: SessionRecord,
    moments: Sequence[Moment],
    minutes: int,
    gap: range = range(0),
) -> Path:
    """So many minutes up to the minute of the first moment, busier and less by turns of 3 h.

    Of those of `gap`, counted from the end, nothing is there. There are no ticks.
    """
    scratch = path.with_suffix(".scratch")
    writer = Writer.create(scratch, session)
    writer.close()
    with Recording(scratch) as recording:
        pieces = [
            Piece(Kind.SESSION, recording.payload(each), each.header.time_ns, each.header.until_ns)
            for each in recording.entries()
            if each.header.kind == Kind.SESSION
        ]
    scratch.unlink()
    end_ns = moments[0].time_ns // MINUTE_NS * MINUTE_NS
    start_ns = end_ns - minutes * MINUTE_NS
    pieces.append(Piece(Kind.TOPOLOGY, _topology(moments[-1]), start_ns, start_ns))
    maker = MinuteMaker()
    for back in range(minutes, -1, -1):
        turn = np.float32(0.55 + 0.45 * np.sin(back * 2 * np.pi / 180))
        heat = moments[back % len(moments)].heat.copy()
        heat[_TRAFFIC] *= turn
        at_ns = end_ns - back * MINUTE_NS
        done = maker.add(replace(moments[-1], time_ns=at_ns, heat=heat))
        if done is not None and back + 1 not in gap:
            pieces.append(Piece(Kind.MINUTE, done[1], done[0], done[0] + MINUTE_NS))
    store = Store(path)
    store.settle(pieces)
    store.write_index()
    store.close()
    return path


def _topology(moment: Moment) -> bytes:
    """As the writer tells it."""
    ports = [
        [port.row, port.node, port.name, port.label, port.role, port.kind, port.peer]
        for port in moment.fabric.ports
    ]
    names = ("row", "node", "name", "label", "role", "kind", "peer")
    told = {
        "version": 1,
        "ports": [dict(zip(names, port, strict=True)) for port in ports],
        "groups": [],
    }
    return compress(msgspec.json.encode(told))
