"""Files in directories that others can write to: nothing of the user's is reached by a link."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fabmon.analysis.scene import Scene
from fabmon.error_log import log_error, log_path
from fabmon.fabric.model import Host
from fabmon.private_files import check_place, make_directory, new_file, replace_file, write_new
from fabmon.session.errors import Exit, UsageError
from fabmon.session.live_page import LivePage
from fabmon.session.presentation import _write_picture, check_writable
from fabmon.session.recorder_setup import recorder_for
from fabmon.session.setting_origins import write_example
from tests.tui.recordings import Watching
from tests.unit.recording.test_recorder import no_file_larger_than


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    watching = Watching()
    return [watching.next() for _ in range(5)]


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A file that nobody else should reach."""
    path = tmp_path / "home" / "id_ed25519"
    make_directory(path.parent)
    write_new(path, b"secret")
    return path


def mode_and_content(path: Path) -> tuple[int, bytes]:
    return path.stat().st_mode & 0o777, path.read_bytes()


async def written(page: LivePage, scenes: list[Scene]) -> None:
    for scene in scenes:
        page.take(scene)
    await page.close()


@pytest.fixture
def before_each_chmod(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Lets another user act at the worst instant: just before a mode is set."""

    def set_up(act: Callable[[], None]) -> None:
        for name in ("chmod", "fchmod"):
            real = getattr(os, name)

            def acting(*args: Any, real: Any = real, **keywords: Any) -> None:
                act()
                real(*args, **keywords)

            monkeypatch.setattr(os, name, acting)

    return set_up


async def test_a_race_for_the_page_opens_no_other_file(
    tmp_path: Path,
    key: Path,
    scenes: list[Scene],
    before_each_chmod: Callable[[Callable[[], None]], None],
) -> None:
    web = tmp_path / "www"
    web.mkdir()
    web.chmod(0o777)
    index = web / "index.html"
    index.touch()
    index.chmod(0o666)

    def plant_links() -> None:
        for each in web.iterdir():
            each.unlink()
            each.symlink_to(key)

    before_each_chmod(plant_links)
    await written(LivePage(web, "pod7"), scenes)
    assert mode_and_content(key) == (0o600, b"secret")


async def test_a_planted_link_makes_no_page_that_others_can_write(
    tmp_path: Path, scenes: list[Scene], caplog: pytest.LogCaptureFixture
) -> None:
    web = tmp_path / "www"
    web.mkdir()
    web.chmod(0o777)
    (web / "open").touch()
    (web / "open").chmod(0o666)
    (web / "index.html").symlink_to(web / "open")
    await written(LivePage(web, "pod7"), scenes)
    assert not (web / "index.html").is_symlink()
    assert {each.name for each in web.iterdir()} == {"open", "index.html"}, "nothing else is left"
    assert (web / "index.html").stat().st_mode & 0o777 == 0o600
    assert caplog.messages == [
        f"--page: {web}: others can write to it: chmod go-w {web}; until then others can replace "
        "the page"
    ]


def test_missing_parents_are_for_their_owner_alone(
    tmp_path: Path, no_umask: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a" / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "b" / "config"))
    assert log_error(ValueError(), "test").startswith("traceback in ")
    configuration = write_example(None)
    modes = {
        each.relative_to(tmp_path).as_posix(): each.stat().st_mode & 0o777
        for each in tmp_path.rglob("*")
        if each.is_dir()
    }
    assert set(modes.values()) == {0o700}, modes
    assert configuration.stat().st_mode & 0o022 == 0, "others could have commands run"


def test_a_link_is_not_written_through(
    tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    link = log_path()
    make_directory(link.parent)
    link.symlink_to(key)
    assert "could not be written" in log_error(ValueError(), "test")
    with pytest.raises(UsageError, match=str(link)):
        check_writable(link)
    replace_file(link, b"new")
    assert (link.read_bytes(), key.read_bytes()) == (b"new", b"secret")


def test_another_name_of_a_file_gives_a_page_no_mode(tmp_path: Path) -> None:
    public, page = tmp_path / "public.txt", tmp_path / "index.html"
    write_new(public, b"for all")
    public.chmod(0o644)
    os.link(public, page)
    replace_file(page, b"names", keeps_mode=True)
    assert mode_and_content(page) == (0o600, b"names")
    assert mode_and_content(public) == (0o644, b"for all")


@pytest.mark.parametrize("content", [b"", None])
def test_nothing_is_recorded_to_a_file_of_another_user(
    content: bytes | None, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who puts an empty file, or a recording, at the name could read what is added to it."""
    path = tmp_path / "planted.fabrec"
    planted = recording.read_bytes() if content is None else content
    path.write_bytes(planted)
    path.chmod(0o666)
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    with pytest.raises(UsageError, match=r"planted\.fabrec: owned by another user"):
        recorder_for(path, [Host(name="gpu001")], 1.0, "pod7")
    assert path.read_bytes() == planted


def test_no_picture_is_written_to_a_pipe_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "a.svg"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _write_picture(pipe, "own")
        assert os.read(reader, 100) == b"own"
        own = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: own + 1)
        with pytest.raises(PermissionError):
            _write_picture(pipe, "names")
        assert os.read(reader, 100) == b""
    finally:
        os.close(reader)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "index.html").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(tmp_path / "index.html", b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["index.html"]


def test_a_directory_that_another_user_can_replace_is_no_place(tmp_path: Path) -> None:
    directory = tmp_path / "shared" / "run"
    make_directory(directory)
    directory.parent.chmod(0o1777)
    check_place(directory)
    directory.parent.chmod(0o777)
    with pytest.raises(PermissionError, match="everyone can replace files in it"):
        check_place(directory)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "a.fabrec"
    Watching().record(path, 8)
    return path


@pytest.mark.parametrize(
    "command",
    [
        "export --format csv {} -o x",
        "export --format jsonl {} -o x",
        "export --format openmetrics {} -o x",
        "export --format parquet {} -o x",
        "report {} -o x",
        "cut {} -o x",
        "demo --duration 0.2s --picture x.svg",
        "config --init --config x",
    ],
)
def test_where_the_disk_is_full_nothing_has_the_name_that_was_asked_for(
    tmp_path: Path, recording: Path, command: str
) -> None:
    """Of no command: no empty file, no half, and nothing beside it."""
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 1; exec {sys.executable} -m fabmon {command}".format(recording)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, list(tmp_path.iterdir())) == (Exit.FAILED, [])
    assert done.stderr.endswith(f"fabmon: x{'.svg' * ('svg' in command)}: File too large\n")


def test_a_picture_that_does_not_fit_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "x.svg"
    path.write_text("before")
    path.chmod(0o644)
    with no_file_larger_than(4096), pytest.raises(OSError, match="too large"):
        _write_picture(path, "x" * 10_000)
    assert mode_and_content(path) == (0o644, b"before")
    _write_picture(path, "after")
    assert mode_and_content(path) == (0o644, b"after")
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_killed_while_it_writes_leaves_no_file_of_that_name(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from fabmon.private_files import new_file\n"
        "with new_file(Path(sys.argv[1])) as file:\n"
        "    file.write(bytes(100_000)); print(1, flush=True); time.sleep(60)"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "x.csv")], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize("write", [write_new, replace_file])
def test_a_signal_right_after_a_file_was_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, bytes], None]
) -> None:
    """Python calls a handler as soon as the call that made the file returns."""
    make = os.open

    def make_and_end(path: str, flags: int, *others: Any, **named: Any) -> int:
        opened = make(path, flags, *others, **named)
        if not flags & os.O_CREAT:
            return opened
        os.close(opened)
        sys.exit(128 + signal.SIGTERM)

    monkeypatch.setattr(os, "open", make_and_end)
    with pytest.raises(SystemExit):
        write(tmp_path / "x.csv", b"ours")
    assert list(tmp_path.iterdir()) == []


def write_beside(path: Path) -> None:
    """Write a file while another program makes one of its name."""
    with new_file(path) as file:
        file.write(b"ours")
        path.write_text("theirs")


def test_nothing_that_is_made_meanwhile_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With hard links, and where a file system has none."""

    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    path = tmp_path / "x.csv"
    for link in (os.link, refused):
        monkeypatch.setattr(os, "link", link)
        with pytest.raises(FileExistsError):
            write_beside(path)
        assert [(each, each.read_text()) for each in tmp_path.iterdir()] == [(path, "theirs")]
        path.unlink()
        write_new(path, b"ours")
        assert mode_and_content(path) == (0o600, b"ours")
        path.unlink()
