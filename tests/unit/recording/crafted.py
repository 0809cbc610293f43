"""Small recordings with correct checksums that claim to be large; run as a program, read one.

`python -m tests.unit.recording.crafted FILE` reads FILE as `fabmon info`, `verify` and `export` do.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from fabmon.history.history import History
from fabmon.recording.format.block import RowLayout, RowTicks, pack_layouts
from fabmon.recording.format.errors import RecordingError
from fabmon.recording.format.frames import (
    FrameEntry,
    FrameKind,
    decode_header,
    encode_frame,
    encode_index,
)
from fabmon.recording.format.predictions import PREDICTION
from fabmon.recording.format.records import EventsRecord, SessionRecord
from fabmon.recording.format.sections import byte_planes, compress, join_sections, pack_section
from fabmon.recording.reading.reader import Recording
from fabmon.recording.reading.summary import summarise
from fabmon.recording.reading.timeline import Timeline
from tests.builders import SECOND_NS, START_NS, hello, port

HEADS = 3


def frame(
    kind: FrameKind, payload: bytes, number: int = 0, part: int = 0, lasts_s: int = 0
) -> bytes:
    time_ns = START_NS + number * SECOND_NS
    until_ns = time_ns + lasts_s * SECOND_NS
    pieces = encode_frame(kind, payload, time_ns=time_ns, until_ns=until_ns, part=part)
    return b"".join(map(bytes, pieces))


def record(kind: FrameKind, value: Any, number: int = 0) -> bytes:
    data = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return frame(kind, compress(data), number)


def beginning() -> bytes:
    session = SessionRecord(started_ns=START_NS, interval_s=1.0, hosts=())
    return record(FrameKind.SESSION, session)


def block(rows: int, columns: int, back: int, number: int = 0, part: int = 0) -> bytes:
    """A block in which every column changes; each is predicted by the one `back` before it."""
    layouts = [RowLayout("a", (columns - HEADS,))]
    ticks = RowTicks(
        np.arange(rows),
        START_NS + (number + np.arange(rows)) * SECOND_NS,
        np.zeros(rows, np.float32),
    )
    table = np.zeros(columns, PREDICTION)
    table["column"] = np.arange(columns)
    table["back"][back:] = back
    table["ratio"] = 1.0
    table["bits"] = 1
    changes = (rows - 1) * columns
    sections = [
        pack_layouts(layouts),
        pack_section(ticks.planes()),
        pack_section(bytes(rows)),
        pack_section(b""),
        pack_section(bytes(8 * columns)),
        pack_section(byte_planes(table).tobytes()),
        pack_section(b"\xff" * ((rows - 1) * -(-columns // 8))),
        pack_section(b"\2" * changes),
    ]
    return frame(FrameKind.BLOCK, join_sections(sections), number, part, rows - 1)


def prediction_chain() -> bytes:
    return beginning() + block(2, 500_000, 1)


def prediction_chains_that_are_read() -> bytes:
    return beginning() + b"".join(block(2, 4000, 1, number) for number in range(0, 200, 2))


def large_block() -> bytes:
    return beginning() + block(4, 1 << 22, 0)


def large_blocks() -> bytes:
    return beginning() + b"".join(block(8, 1 << 21, 0, 0, part) for part in range(4))


def repeated(text: bytes, count: int) -> bytes:
    return text * (count - 1) + text.rstrip(b",")


def finding_of_objects() -> bytes:
    note = b'{"kind":"finding","time_ns":1,"seq":1,"text":"x","finding":{"a":[%b]}}'
    return beginning() + record(FrameKind.NOTE, note % repeated(b"{},", 60_000_000))


def many_findings() -> bytes:
    note = b'{"kind":"finding","time_ns":%d,"seq":1,"text":"x","finding":{"a":[%b]}}'
    many = repeated(b"{},", 12_000)
    return beginning() + b"".join(
        record(FrameKind.NOTE, note % (START_NS + number * SECOND_NS, many), number)
        for number in range(2000)
    )


def finding_nested_deeply() -> bytes:
    note = b'{"kind":"finding","time_ns":1,"seq":1,"text":"x","finding":{"a":%b}}'
    deep = b"[" * 1_000_000 + b"]" * 1_000_000
    return beginning() + record(FrameKind.NOTE, note % deep)


def session_of_hosts() -> bytes:
    text = b'{"started_ns":1,"interval_s":1,"hosts":[%b]}'
    return record(FrameKind.SESSION, text % repeated(b'{"name":"a"},', 18_000_000))


def events_of_statuses() -> bytes:
    text = b'{"seq":%d,"time_ns":%d,"statuses":[%b]}'
    status = b'{"node":"a","state":"up","since_ns":1},'
    pieces = [
        record(FrameKind.EVENTS, text % (n, START_NS + n * SECOND_NS, repeated(status, 900_000)), n)
        for n in range(12)
    ]
    return beginning() + b"".join(pieces)


def unprintable_text() -> bytes:
    note = b'{"kind":"bookmark","time_ns":1,"seq":1,"text":"\\u001b","ports":[%b]}'
    return beginning() + record(FrameKind.TOPOLOGY, note % repeated(b'"a",', 60_000_000))


def layouts_of_nothing() -> bytes:
    sections = [compress(b"[" + repeated(b'["",[]],', 30_000_000) + b"]")] + [compress(b"")] * 5
    return beginning() + frame(FrameKind.BLOCK, join_sections(sections))


def index_of_frames() -> bytes:
    index = join_sections([bytes(8), compress(bytes(47 * 5_000_000))])
    return beginning() + frame(FrameKind.INDEX, index)


def index_beyond_the_end() -> bytes:
    """One frame is far away, and so is the index before it."""
    own = decode_header(beginning())
    assert own is not None
    listed = encode_index([FrameEntry(1 << 63, own)], 0)
    pieces = encode_frame(FrameKind.INDEX, listed, time_ns=START_NS, index_at=1 << 63)
    return beginning() + b"".join(map(bytes, pieces))


def large_minutes() -> bytes:
    ports = 1 << 25
    sections = [
        *(compress(b"utilisation"), compress(bytes(4 * ports))),
        *([compress(bytes(2 * ports))] * 2 + [compress(bytes(6 * ports))] * 2),
    ]
    minute = join_sections(sections)
    return beginning() + b"".join(
        frame(FrameKind.MINUTE, minute, 60 * n, lasts_s=60) for n in range(4)
    )


def texts_of_spaces() -> bytes:
    # Eight of them are more than the limit of memory: none may be kept.
    text = b" " * (200 << 20)
    return beginning() + b"".join(record(FrameKind.EVENTS, text, number) for number in range(8))


def hello_of_wrong_facts() -> bytes:
    bad = hello(port("eth0", peer="x", members=5))
    return beginning() + _with_hello(bad)


def hello_of_many_ports() -> bytes:
    return beginning() + _with_hello(hello(*(port(f"eth{n}") for n in range(50_000))))


def _with_hello(bad: Any) -> bytes:
    events = EventsRecord(seq=0, time_ns=START_NS, hellos=(("gpu001", bad),))
    return record(FrameKind.EVENTS, events)


def interval(value: bytes) -> bytes:
    return record(
        FrameKind.SESSION, b'{"started_ns":%d,"interval_s":%b,"hosts":[]}' % (START_NS, value)
    )


CASES: dict[str, Callable[[], bytes]] = {
    each.__name__: each
    for each in (
        *(prediction_chain, prediction_chains_that_are_read, large_block, large_blocks),
        *(finding_of_objects, many_findings, finding_nested_deeply, session_of_hosts),
        *(events_of_statuses, unprintable_text, layouts_of_nothing, index_of_frames),
        *(
            index_beyond_the_end,
            large_minutes,
            texts_of_spaces,
            hello_of_wrong_facts,
            hello_of_many_ports,
        ),
    )
}


def read(path: Path) -> Iterator[str]:
    """Read a file in every way; what is damaged."""
    try:
        with Recording(path) as recording:
            summarise(recording).text()
        with Timeline([path]) as timeline:
            history = History(timeline.hosts)
            for tick in timeline.ticks():
                history.accept(tick)
            timeline.prime(timeline.until_ns)
            for minute in timeline.minutes():
                with suppress(RecordingError):
                    minute.highest_10s()
        with Recording(path) as recording:
            for _ in recording.verify():
                pass
            yield from (f"byte {loss.offset}: {loss.text}" for loss in recording.losses)
    except RecordingError as error:
        yield f"refused: {error}"


if __name__ == "__main__":
    print("\n".join(read(Path(sys.argv[1]))))
    # Not ru_maxrss: that begins with the memory of the process that forked this one.
    status = Path("/proc/self/status").read_text()
    print(*re.findall(r"VmHWM:\s+(\d+)", status))
