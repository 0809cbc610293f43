"""Files in directories that others can write to: nothing of the user's is reached by a link."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fabmon.analysis.scene import Scene
from fabmon.error_log import log_error, log_path
from fabmon.private_files import check_place, make_directory, replace_file, write_new
from fabmon.session.errors import UsageError
from fabmon.session.live_page import LivePage
from fabmon.session.presentation import check_writable
from fabmon.session.setting_origins import write_example
from tests.tui.recordings import Watching


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
