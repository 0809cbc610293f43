"""A recording made by fabmon 0 of 2026-11: later versions read it, and write the same frames."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from fabmon.analysis.scene import Scene
from fabmon.recording.format.frames import FrameKind
from fabmon.recording.format.records import Note, SessionRecord, StateRecord
from fabmon.recording.format.sections import decompress, split_sections
from fabmon.recording.reading.reader import Recording
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.writer import Writer
from tests.builders import new_pipeline

OLD = Path(__file__).parents[2] / "fixtures" / "recordings" / "infiniband_collision.fabrec"
"""45 s of 8 hosts, InfiniBand fat tree; two flows share an uplink of leaf1 from 8 s to 23 s."""

NAMES = ("cause", "subject")
HOSTS: dict[str, type[SessionRecord | StateRecord]] = {
    FrameKind.SESSION: SessionRecord,
    FrameKind.STATE: StateRecord,
}


def scenes(path: Path) -> Iterator[Scene]:
    with Timeline([path]) as timeline:
        pipeline = new_pipeline(timeline.hosts, timeline.interval_s)
        for tick in timeline.ticks():
            yield pipeline.accept(tick)


def contents(path: Path) -> list[tuple[object, ...]]:
    """Kind, time and decompressed payload of every frame except the index, which has offsets."""
    frames: list[tuple[object, ...]] = []
    with Recording(path) as recording:
        for entry in recording.entries():
            head, payload = entry.header, recording.payload(entry)
            content: object = payload
            if head.kind == FrameKind.MINUTE:
                content = None  # Rates are computed: a version may add columns.
            elif head.kind == FrameKind.BLOCK:
                content = [decompress(section) for section in split_sections(payload)]
            elif head.kind in HOSTS:
                # A version may add fields of hosts, with their defaults in older recordings.
                content = msgspec.json.decode(decompress(payload), type=HOSTS[head.kind])
            elif head.kind != FrameKind.END:
                content = decompress(payload) if head.kind != FrameKind.INDEX else None
            frames.append((head.kind, head.flags, head.part, head.time_ns, head.until_ns, content))
    return frames


def test_it_is_read_whole() -> None:
    with Recording(OLD) as recording:
        assert recording.is_closed
        assert len(recording.hosts) == 14
        assert len(list(recording.ticks())) == 45
        list(recording.verify())
        assert not recording.losses


def test_it_replays_to_the_finding_that_was_noted_when_it_was_made() -> None:
    """Rules and numbers change with versions; what was found, where and when must not."""
    with Recording(OLD) as recording:
        noted = [note for note in recording.notes() if note.kind == "finding"]
    found = [
        (scene.snapshot.time_ns, change.value, finding)
        for scene in scenes(OLD)
        for change, finding in scene.changes
    ]
    assert [note.change for note in noted] == ["open", "update", "close"]
    ((time_ns, _, finding),) = (each for each in found if each[1] == "open")
    assert [getattr(finding, name) for name in NAMES] == [noted[0].finding[n] for n in NAMES]
    assert abs(time_ns - noted[0].time_ns) <= 2_000_000_000


def test_the_same_ticks_make_the_same_frames(tmp_path: Path) -> None:
    path = tmp_path / "again.fabrec"
    with Recording(OLD) as recording:
        notes: list[Note] = recording.notes()
        writer = Writer.create(path, recording.sessions[0])
        for scene, tick in zip(scenes(OLD), recording.ticks(), strict=True):
            due = [note for note in notes if note.time_ns == tick.time_ns]
            findings = [note for note in due if note.kind == "finding"]
            writer.write(tick, scene.snapshot, findings)
            for note in due:
                if note.kind == "bookmark":
                    writer.note(note)
        writer.close()
    assert contents(path) == contents(OLD)
