"""Texts of a foreign recording cannot control the terminal."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.recording.format.frames import FrameKind, encode_frame
from fabmon.recording.format.records import Note, decode_sanitised
from fabmon.recording.format.sections import compress
from fabmon.recording.reading.reader import Recording
from fabmon.recording.writing.writer import Writer
from tests.builders import START_NS, LeafSpine
from tests.unit.recording.builders import quiet_ticks, session
from tests.unit.test_cli import fabmon_here

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp"
TOLD = "?]0;owned??[2J?31m?gnp"


def hostile(path: Path) -> Path:
    """Write a recording with escape sequences in every text that is shown."""
    record = msgspec.structs.replace(session(LeafSpine()), title=EVIL, recorder=EVIL)
    ticks = quiet_ticks(40)
    lost = NodeStatus("gpu001", NodeState.LOST, START_NS, EVIL, EVIL)
    ticks[30] = msgspec.structs.replace(ticks[30], statuses=(lost,))
    writer = Writer.create(path, record)
    for tick in ticks:
        writer.write(tick)
    writer.note(Note(kind="bookmark", time_ns=ticks[5].time_ns, seq=5, text=EVIL))
    writer.close()
    return path


@pytest.mark.parametrize("command", [("info",), ("replay", "--format", "table"), ("verify",)])
def test_no_escape_sequence_of_a_recording_reaches_the_terminal(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    name, *options = command
    done = fabmon_here(name, str(hostile(tmp_path / "a.fabrec")), *options)
    assert all(char.isprintable() for char in (done.stdout + done.stderr).replace("\n", ""))
    assert (TOLD in done.stdout) == (name != "verify")


def test_all_texts_are_sanitised_when_they_are_read(tmp_path: Path) -> None:
    with Recording(hostile(tmp_path / "a.fabrec")) as recording:
        assert recording.sessions[0].title == TOLD
        assert [note.text for note in recording.notes()] == [TOLD]
        reasons = [status.reason for tick in recording.ticks() for status in tick.statuses]
        assert reasons[-1] == TOLD


def test_printable_text_is_unchanged() -> None:
    document = {"path": 'a\\nb "c" /d', "\u26a0 key": ["\xe4\u4e2d"]}
    assert decode_sanitised(msgspec.json.encode(document), dict[str, object]) == document
    nested = decode_sanitised(b'{"a\\u001b": {"b": ["c\\td", 5, null]}}', dict[str, object])
    assert nested == {"a?": {"b": ["c?d", 5, None]}}


@pytest.mark.parametrize("interval_s", [1e300, 1e-300, -1.0])
def test_an_impossible_interval_is_a_loss_with_its_offset(
    tmp_path: Path, interval_s: float
) -> None:
    path = tmp_path / "a.fabrec"
    ticks = quiet_ticks(10)
    name, first = ticks[0].hellos[0]
    crafted = msgspec.structs.replace(first, interval_s=interval_s)
    ticks[5] = msgspec.structs.replace(ticks[5], hellos=((name, crafted),))
    writer = Writer.create(
        path, msgspec.structs.replace(session(LeafSpine()), interval_s=interval_s)
    )
    for each in ticks:
        writer.write(each)
    writer.close()
    with Recording(path) as recording:
        assert recording.interval_s == 1.0
        assert [each.seq for each in recording.ticks()] == [each.seq for each in ticks]
        recording.prime(ticks[-1].time_ns)
        list(recording.verify())
        texts = [loss.text for loss in recording.losses]
    # Of the session and of the hello, and of the two states that repeat them: a short interval of a
    # hello is harmless.
    assert len(texts) == (2 if interval_s == 1e-300 else 4)
    assert all("interval_s" in each for each in texts)
    done = fabmon_here("replay", str(path), "--format", "table")
    assert "Traceback" not in done.stderr
    assert "unexpected error" not in done.stderr
    assert "bytes 0 to" in done.stderr


def test_a_record_that_is_nested_too_deeply_is_a_loss(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    writer = Writer.create(path, session(LeafSpine()))
    for each in quiet_ticks(3):
        writer.write(each)
    writer.close()
    deep = b"[" * 100_000 + b"]" * 100_000
    record = b'{"kind":"bookmark","time_ns":%d,"seq":1,"text":"\\u001b","finding":{"a":%s}}'
    payload = compress(record % (START_NS, deep))
    with path.open("ab") as file:
        file.writelines(map(bytes, encode_frame(FrameKind.NOTE, payload, time_ns=START_NS)))
    with Recording(path) as recording:
        assert recording.notes() == []
        assert len(list(recording.ticks())) == 3
        assert [loss.end for loss in recording.losses] == [path.stat().st_size]
