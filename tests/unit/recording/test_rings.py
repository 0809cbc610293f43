"""The ring recordings of several consoles on several machines in one directory."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from fabmon.recording.writing.recorder import Recorder
from fabmon.session.config import RecordingConfig
from fabmon.session.errors import UsageError
from fabmon.session.recorder_setup import last_ring, ring_directories, ring_recorder
from fabmon.session.replay_run import last_screen
from tests.builders import LeafSpine
from tests.unit.recording.builders import quiet_ticks, write


def left(home: Path, name: str, age: int) -> Path:
    """Make a ring directory that was last written to some time ago."""
    directory = home / name
    directory.mkdir()
    file = directory / "live-20251121T044000Z.fabrec"
    write(file, quiet_ticks(3))
    for each in (file, directory):
        os.utime(each, (1e9 - age, 1e9 - age))
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


def test_a_ring_of_a_wrong_clock_does_not_displace_the_last_one(home: Path) -> None:
    """Written to in the future by an earlier process: the one begun after it is kept as well."""
    home.mkdir(mode=0o700)
    host = socket.gethostname()
    ahead, last = left(home, f"{host}-1-77", -86_400), left(home, f"{host}-1-99", 5)
    older = left(home, f"{host}-1-88", 10)
    (older / "live-20251121T044001Z.fabrec").symlink_to("gone")
    os.utime(older, (1e9 - 10, 1e9 - 10))
    recorder = ring_recorder(RecordingConfig(), LeafSpine().hosts, 1.0, "")
    assert isinstance(recorder, Recorder)
    recorder.close()
    assert [each.exists() for each in (ahead, last, older)] == [True, True, False]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where rings are without XDG_RUNTIME_DIR: in a directory that everyone can write to."""
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    return shared / f"fabmon-{os.getuid()}"


def refusals() -> list[str]:
    """Why no ring is recorded, and why none is replayed."""
    recorder = ring_recorder(RecordingConfig(), LeafSpine().hosts, 1.0, "")
    assert isinstance(recorder, str), recorder.close()
    with pytest.raises(UsageError) as caught:
        last_ring(RecordingConfig())
    return [recorder.removeprefix("not recording: "), str(caught.value)]


def test_rings_are_private(home: Path) -> None:
    recorder = ring_recorder(RecordingConfig(), LeafSpine().hosts, 1.0, "SIMULATED: tour")
    assert isinstance(recorder, Recorder)
    path = recorder.close().path
    modes = [each.stat().st_mode & 0o777 for each in (path, *path.parents[:3])]
    assert modes == [0o600, 0o700, 0o700, 0o700]
    assert last_ring(RecordingConfig()) == path.parent


def test_the_last_ring_is_the_one_that_was_written_to_last(home: Path) -> None:
    """A ring's directory changes with each new file only, its last file with every block."""
    home.mkdir(mode=0o700)
    live, other = left(home, "login1-1-1", 10), left(home, "login1-2-2", 100)
    os.utime(live, (1e9 - 600, 1e9 - 600))
    assert last_ring(RecordingConfig()) == live != other


def test_a_demo_that_runs_is_not_replayed_instead_of_real_nodes(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "demo").mkdir(parents=True)
    home.chmod(0o700)
    demo = left(home / "demo", "login1-2-2", 10)
    assert last_screen(RecordingConfig()) == demo
    live = left(home, "login1-1-1", 100)
    assert last_screen(RecordingConfig()) == live
    assert capsys.readouterr().err.endswith(f"fabmon: the recording of the last screen: {live}\n")


def test_a_planted_link_is_not_followed(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    left(elsewhere, "evil-1-1", 1)
    before = sorted(elsewhere.rglob("*"))
    home.symlink_to(elsewhere)
    assert all(why.startswith(f"{home}: it is a link: remove it; or ") for why in refusals())
    assert sorted(elsewhere.rglob("*")) == before


def test_a_directory_that_others_can_write_to_is_refused(home: Path) -> None:
    home.mkdir()
    left(home, "evil-1-1", 1)
    home.chmod(0o777)
    expected = f"{home}: others can write to it: chmod go-w {home}; or "
    assert all(why.startswith(expected) for why in refusals())


def test_a_ring_that_others_can_write_to_is_not_replayed(home: Path) -> None:
    home.mkdir(mode=0o700)
    ring = left(home, "login1-1-1", 1)
    ring.chmod(0o777)
    with pytest.raises(UsageError, match=f"{ring}: others can write to it: chmod go-w {ring}"):
        last_ring(RecordingConfig())


def test_a_directory_that_others_could_replace_is_refused(home: Path) -> None:
    home.mkdir(mode=0o700)
    home.parent.chmod(0o777)
    for why in refusals():
        assert why.startswith(f"{home.parent}: everyone can replace files in it; or ")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
@pytest.mark.parametrize("part", ["", "demo"])
def test_a_directory_of_another_user_is_refused(home: Path, part: str) -> None:
    (home / part).mkdir(parents=True)
    home.chmod(0o700)
    left(home / part, "evil-1-1", 1)
    os.chown(home / part, 12345, 12345)
    recorder = ring_recorder(RecordingConfig(), LeafSpine().hosts, 1.0, "SIMULATED: tour")
    assert isinstance(recorder, str)
    assert "belongs to another user" in recorder
    with pytest.raises(UsageError, match="belongs to another user"):
        last_ring(RecordingConfig())
