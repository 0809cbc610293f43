"""Recordings with correct checksums and wrong contents, as a crafted file has them."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from fabmon.history.history import History
from fabmon.recording.format.errors import Damaged, RecordingError
from fabmon.recording.format.frames import FrameEntry, FrameKind, encode_frame
from fabmon.recording.format.sections import (
    ZstdError,
    compress,
    decompress,
    join_sections,
    split_sections,
)
from fabmon.recording.reading.raw_chunks import raw_chunks
from fabmon.recording.reading.reader import Recording
from fabmon.recording.reading.summary import summarise
from fabmon.recording.reading.timeline import Timeline
from tests.fuzzing import PATIENCE_S, changed, try_cases
from tests.unit.recording.builders import eventful_ticks, quiet_ticks, write


def changed_payload(payload: bytes, chance: random.Random) -> bytes:
    """The same kind of payload, whose decompressed contents were changed."""
    try:
        sections = split_sections(payload)
    except Damaged:
        try:
            return compress(changed(decompress(payload), chance))
        except ZstdError:
            return changed(payload, chance)
    number = chance.randrange(len(sections)) if sections else 0
    if sections:
        try:
            sections[number] = compress(changed(decompress(sections[number]), chance))
        except ZstdError:
            sections[number] = changed(sections[number], chance)
    return join_sections(sections)


def encoded(entry: FrameEntry, payload: bytes, index_at: int = 0) -> bytes:
    """A frame with a correct checksum, and the header of `entry`."""
    header = entry.header
    frame = encode_frame(
        FrameKind(header.kind),
        payload,
        time_ns=header.time_ns,
        until_ns=header.until_ns,
        part=header.part,
        flags=header.flags,
        index_at=index_at,
    )
    return b"".join(map(bytes, frame))


def crafted(frames: list[tuple[FrameEntry, bytes]], chance: random.Random) -> bytes:
    """A file of these frames, some of them changed, all with correct checksums."""
    hit = {chance.randrange(len(frames)) for _ in range(chance.choice((1, 1, 3)))}
    pieces: list[bytes] = []
    for number, (entry, payload) in enumerate(frames):
        content = changed_payload(payload, chance) if number in hit else payload
        pieces.append(encoded(entry, content, entry.header.index_at))
    return b"".join(pieces)


def read_completely(path: Path) -> None:
    """Read it in every way. Raises RecordingError where it cannot be opened at all."""
    with Timeline([path]) as timeline:
        history = History(timeline.hosts)
        for tick in timeline.ticks():
            history.accept(tick)
        for chunk in raw_chunks(timeline):
            for frames in chunk.frames:
                frames.read([0])
    with Recording(path) as recording:
        recording.prime(recording.until_ns)
        recording.notes()
        recording.topology()
        for minute in recording.minutes():
            with suppress(RecordingError):
                minute.highest_10s()
                minute.mean_10s()
        recording.strip(recording.start_ns, recording.until_ns, 80)
    with Recording(path) as recording:
        summarise(recording).text()
        by_info = recording.losses
    with Recording(path) as recording:
        list(recording.verify())
        assert recording.losses or not by_info, "info reports damage, verify does not"


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("close", [True, False])
def test_a_crafted_recording_is_read_or_refused_in_bounded_time(
    tmp_path: Path, close: bool
) -> None:
    source, path = tmp_path / "source.fabrec", tmp_path / "crafted.fabrec"
    writer = write(source, eventful_ticks() + quiet_ticks(300)[40:], close=close)
    if not close:
        writer.abandon()
    with Recording(source) as recording:
        frames = [(entry, recording.payload(entry)) for entry in recording.entries()]

    def attempt(chance: random.Random) -> None:
        path.write_bytes(crafted(frames, chance))
        with suppress(RecordingError):
            read_completely(path)

    try_cases(attempt, share=1 / 8)
