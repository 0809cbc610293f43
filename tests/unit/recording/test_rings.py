"""The ring recordings of several consoles on several machines in one directory."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from fabmon.recording.writing.recorder import Recorder
from fabmon.session.config import RecordingConfig
from fabmon.session.recorder_setup import ring_directories, ring_recorder
from tests.builders import LeafSpine
from tests.unit.recording.builders import quiet_ticks, write


def left(home: Path, name: str, age: int) -> Path:
    """Make a ring directory that was last written to some time ago."""
    directory = home / name
    directory.mkdir()
    write(directory / "live-20251121T044000Z.fabrec", quiet_ticks(3))
    os.utime(directory, (1e9 - age, 1e9 - age))
    return directory


def test_only_rings_of_ended_consoles_of_this_machine_are_removed(tmp_path: Path) -> None:
    host, parent = socket.gethostname(), os.getppid()
    elsewhere = left(tmp_path, f"not{host}-1-77", 4)
    reused = left(tmp_path, f"{host}-{parent}-0", 3)
    gone = left(tmp_path, f"{host}-99999999-77", 2)
    last = left(tmp_path, f"{host}-99999998-77", 1)
    config = RecordingConfig(directory=str(tmp_path))
    first = ring_recorder(config, LeafSpine().hosts, 1.0, "")
    assert isinstance(first, Recorder)
    ours = first.status.path.parent
    assert sorted(ring_directories(tmp_path)) == sorted([elsewhere, last, ours])
    assert not reused.exists()
    assert not gone.exists()
    first.close()
    again = ring_recorder(config, LeafSpine().hosts, 1.0, "")
    assert isinstance(again, Recorder)
    again.close()
    assert ours.exists()
    assert last.exists()
    assert again.status.path.parent == ours
