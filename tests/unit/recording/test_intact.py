"""What verify calls intact, every command reads."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from fabmon.cli.main import cli
from fabmon.fabric.time_wording import LATEST_NS
from fabmon.history.history import History
from fabmon.recording.format.errors import RecordingError
from fabmon.recording.format.frames import FrameEntry, FrameKind
from fabmon.recording.format.records import Note
from fabmon.recording.format.sections import compress, decompress
from fabmon.recording.reading.reader import Recording
from fabmon.recording.writing.writer import Writer
from fabmon.session.errors import OutputError, UsageError
from tests.builders import LeafSpine
from tests.fuzzing import PATIENCE_S, try_cases
from tests.unit.recording.builders import eventful_ticks, session
from tests.unit.recording.test_fuzz import crafted, encoded

COMMANDS = (
    "info {}",
    "verify {}",
    "query findings {}",
    "query links {}",
    "query history {} --port {port}",
    "cut {} -o {out}/cut.fabrec",
    "replay {} --once",
    "export {} --format csv",
    "report {} -o {out}/report.html",
)

Frames = list[tuple[FrameEntry, bytes]]


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Frames:
    """Those of a recording of a small fabric with a finding and a bookmark."""
    path = tmp_path_factory.mktemp("intact") / "a.fabrec"
    history = History(LeafSpine().hosts)
    writer = Writer.create(path, session(LeafSpine()))
    for tick in eventful_ticks():
        writer.write(tick, history.accept(tick))
    writer.close()
    with Recording(path) as recording:
        frames = [(entry, recording.payload(entry)) for entry in recording.entries()]
        at_ns = recording.until_ns
    finding = {"cause": "incast", "subject": "leaf1/up1", "since_ns": at_ns - 5_000_000_000}
    for change, text in (("open", "an incast"), ("", "here")):
        note = Note(
            kind="finding" if change else "bookmark",
            time_ns=at_ns,
            seq=3,
            text=text,
            change=change,
            finding=finding if change else {},
        )
        entry = frames[-1][0]
        header = entry.header._replace(
            kind=FrameKind.NOTE, time_ns=at_ns, until_ns=at_ns, part=len(text)
        )
        frames.insert(-2, (FrameEntry(0, header), compress(msgspec.json.encode(note))))
    return frames


ODD: tuple[Any, ...] = ({}, [], {"a": 1}, [None], None, True, -1, 1.5, 1e300, "", "x\u001b[31m")


def with_odd_value(payload: bytes, chance: random.Random) -> bytes:
    """A JSON record with one of its values replaced, at any depth."""
    try:
        record = msgspec.json.decode(decompress(payload))
    except Exception:
        return payload
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            places.append((value, key))
            if isinstance(item, dict | list):
                walk(item)

    if isinstance(record, dict | list):
        walk(record)
    if not places:
        return payload
    parent, key = chance.choice(places)
    parent[key] = chance.choice((*ODD, 2**62, 2**63, 10**30))
    return compress(msgspec.json.encode(record))


def with_odd_record(frames: Frames, chance: random.Random) -> bytes:
    place = chance.randrange(len(frames))
    entry, payload = frames[place]
    return _file([*frames[:place], (entry, with_odd_value(payload, chance)), *frames[place + 1 :]])


def with_odd_time(frames: Frames, chance: random.Random) -> bytes:
    place = chance.randrange(len(frames))
    entry, payload = frames[place]
    odd_ns = chance.choice((0, -1, 1, 2**62, 2**63 - 1, entry.header.time_ns + 10**9))
    head = entry.header
    is_start = chance.random() < 0.5
    header = head._replace(time_ns=odd_ns) if is_start else head._replace(until_ns=odd_ns)
    return _file([*frames[:place], (FrameEntry(0, header), payload), *frames[place + 1 :]])


def _file(frames: Frames) -> bytes:
    """Without an index: its places would be wrong, and all frames are found without it."""
    return b"".join(
        encoded(entry, payload) for entry, payload in frames if entry.header.kind != FrameKind.INDEX
    )


def test_ticks_of_the_last_minute_that_64_bits_hold_are_damage(
    tmp_path: Path,
) -> None:
    """`cut` of one ended with an unexpected error: that minute ends later."""
    ticks = eventful_ticks()
    ahead_ns = LATEST_NS - ticks[-1].time_ns
    path, out = tmp_path / "a.fabrec", tmp_path / "out"
    out.mkdir()
    with suppress(struct.error), closing(Writer.create(path, session(LeafSpine()))) as writer:
        for tick in ticks:
            writer.write(msgspec.structs.replace(tick, time_ns=tick.time_ns + ahead_ns))
    assert not is_intact(path)
    assert not unexpected(path, out)


def is_intact(path: Path) -> bool:
    """Whether verify finds no damage."""
    try:
        with Recording(path) as recording:
            list(recording.verify())
            return not recording.losses
    except RecordingError:
        return False


def unexpected(path: Path, out: Path, commands: Sequence[str] = COMMANDS) -> str:
    """What a command fails with that is no message of fabmon; empty for nothing."""
    for each in commands:
        for made in out.iterdir():
            made.unlink()
        arguments = [
            word.replace("{port}", "leaf1/up1").replace("{out}", str(out)).replace("{}", str(path))
            for word in each.split()
        ]
        error = CliRunner().invoke(cli, arguments, standalone_mode=False).exception
        if error is not None and not isinstance(error, UsageError | OutputError | SystemExit):
            return f"{each}: {error!r}"
    return ""


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("change", [with_odd_record, with_odd_time, crafted])
def test_what_verify_calls_intact_is_read_by_every_command(
    tmp_path: Path, frames: Frames, change: Callable[[Frames, random.Random], bytes]
) -> None:
    path, out = tmp_path / "a.fabrec", tmp_path / "out"
    out.mkdir()
    path.write_bytes(_file(frames))
    assert is_intact(path)
    assert not unexpected(path, out)

    def attempt(chance: random.Random) -> None:
        path.write_bytes(change(frames, chance))
        if is_intact(path):
            found = unexpected(path, out, chance.sample(COMMANDS, 3))
            assert not found, found

    try_cases(attempt, share=1 / 12)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"cause": {"a": 1}}, "Expected `str`, got `object`"),
        ({"worst": {"seen_ns": 10**30}}, "Expected `int` <= 9223372036854775807"),
        ({"worst": {"seen_ns": -1}}, "Expected `int` >= 0"),
    ],
)
def test_a_note_whose_finding_is_none_is_damage(
    tmp_path: Path, frames: Frames, change: dict[str, object], error: str
) -> None:
    place = next(n for n, (e, _) in enumerate(frames) if e.header.kind == FrameKind.NOTE)
    entry, payload = frames[place]
    note = msgspec.json.decode(decompress(payload))
    note["finding"] |= change
    changed = compress(msgspec.json.encode(note))
    path, out = tmp_path / "a.fabrec", tmp_path / "out"
    out.mkdir()
    path.write_bytes(_file([*frames[:place], (entry, changed), *frames[place + 1 :]]))
    with Recording(path) as recording:
        list(recording.verify())
        (loss,) = recording.losses
    assert loss.text.startswith(f"the finding of a note is not one: {error}")
    assert not unexpected(path, out)
