"""The single file: it unpacks itself once and runs, or says in a line why it does not."""

from __future__ import annotations

import filecmp
import json
import os
import stat
import subprocess
import threading
import zipfile
from pathlib import Path

import pytest

import fabmon
from release import launcher
from release.wheels import GLIBC
from release.zipapp import write_zipapp
from tests import requirements
from tests.fixtures.interpreters import interpreter
from tests.installed_wheels import HERE, PYTHON

VERSION = f"fabmon, version {fabmon.__version__}\n"


@pytest.fixture(scope="module")
def zipapp(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("zipapp") / "fabmon.pyz"
    write_zipapp(out, fabmon.__version__, {HERE.name: wheels}, {"cp314-aarch64": "no wheel of x"})
    return out


@pytest.fixture(scope="module")
def used(zipapp: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home directory of a user who has run it once."""
    home = tmp_path_factory.mktemp("home")
    done = run(zipapp, home, "--version")
    assert done.stdout == VERSION, done.stderr
    assert "unpacking, once" in done.stderr
    return home


def run(
    zipapp: Path, home: Path, *arguments: str, python: str = PYTHON
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, str(zipapp), *arguments],
        cwd=home,
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )


def caches(home: Path) -> list[Path]:
    return list((home / ".cache" / "fabmon-zipapp").iterdir())


def test_it_unpacks_once_into_a_directory_of_the_user_alone(zipapp: Path, used: Path) -> None:
    (cache,) = caches(used)
    for directory in (cache, cache.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert cache.name.startswith(f"{fabmon.__version__}-{HERE.name}-")
    again = run(zipapp, used, "--version")
    assert (again.stdout, again.stderr) == (VERSION, "")


def test_the_demo_and_this_machine_run_from_it(zipapp: Path, used: Path) -> None:
    demo = run(zipapp, used, "demo", "--once")
    assert "SIMULATED" in demo.stderr
    assert demo.returncode == 0
    here = run(zipapp, used, "--once", "--format", "json")
    assert here.returncode == 0, here.stderr
    assert json.loads(here.stdout)


def test_two_of_the_same_wheels_are_the_same_bytes(
    zipapp: Path, wheels: list[Path], tmp_path: Path
) -> None:
    again = tmp_path / "fabmon.pyz"
    missing = {"cp314-aarch64": "no wheel of x"}
    write_zipapp(again, fabmon.__version__, {HERE.name: wheels[::-1]}, missing)
    assert filecmp.cmp(again, zipapp, shallow=False)


def test_a_damaged_file_is_refused(zipapp: Path, tmp_path: Path) -> None:
    content = bytearray(zipapp.read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged = tmp_path / "fabmon.pyz"
    damaged.write_bytes(content)
    done = run(damaged, tmp_path, "--version")
    assert done.returncode == 1
    assert "fabmon.pyz: this file is damaged: " in done.stderr
    assert not caches(tmp_path)


def test_a_wheel_that_is_not_the_one_of_the_manifest_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        wheel.writestr("a.py", "")
    write_zipapp(tmp_path / "good.pyz", "1", {HERE.name: [tmp_path / "a.whl"]}, {})
    with (
        zipfile.ZipFile(tmp_path / "good.pyz") as good,
        zipfile.ZipFile(tmp_path / "bad.pyz", "w") as bad,
    ):
        for name in good.namelist():
            bad.writestr(name, b"other" if name.endswith(".whl") else good.read(name))
    done = run(tmp_path / "bad.pyz", tmp_path, "--version")
    assert "a.whl has another SHA-256" in done.stderr


@pytest.mark.parametrize("damage", ["changed", "removed", "list"])
def test_a_damaged_cache_is_refused(damage: str, zipapp: Path, used: Path) -> None:
    (cache,) = caches(used)
    victim = cache / ("FILES.json" if damage == "list" else "click/core.py")
    content, times = victim.read_bytes(), victim.stat()
    victim.unlink()
    if damage != "removed":
        victim.write_bytes(content[:-1])
    done = run(zipapp, used, "--version")
    victim.write_bytes(content)
    os.utime(victim, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert done.returncode == 1
    assert "the cache is damaged: " in done.stderr
    assert f"rm -r {cache}\n" in done.stderr
    assert run(zipapp, used, "--version").stdout == VERSION


@pytest.mark.parametrize("where", ["all", "one"])
def test_a_cache_that_others_may_write_to_is_refused(where: str, zipapp: Path, used: Path) -> None:
    (cache,) = caches(used)
    opened = cache if where == "one" else cache.parent
    opened.chmod(0o770)
    done = run(zipapp, used, "--version")
    opened.chmod(0o700)
    assert f"{opened} is open to other users" in done.stderr


def test_a_cache_of_another_user_or_elsewhere_is_refused(
    zipapp: Path, used: Path, tmp_path: Path
) -> None:
    requirements.need_root()
    (cache,) = caches(used)
    os.chown(cache, 65534, 65534)
    done = run(zipapp, used, "--version")
    os.chown(cache, 0, 0)
    assert f"{cache} is not a directory of yours" in done.stderr
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "fabmon-zipapp").symlink_to(cache.parent)
    assert "is not a directory of yours" in run(zipapp, tmp_path, "--version").stderr


def test_a_cache_directory_that_is_a_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(launcher.Refused, match="File exists; set XDG_CACHE_HOME"):
        launcher.cache_directory()


def test_ten_that_begin_at_once_unpack_one_cache(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        wheel.writestr("fabmon/cli/main.py", "def main(): print('runs')")
    write_zipapp(tmp_path / "a.pyz", "1", {HERE.name: [tmp_path / "a.whl"]}, {})
    outputs: list[str] = []
    threads = [
        threading.Thread(target=lambda: outputs.append(run(tmp_path / "a.pyz", tmp_path).stdout))
        for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == ["runs\n"] * 10
    assert len(caches(tmp_path)) == 1


@pytest.mark.parametrize("version", ["3.6", "3.9"])
def test_an_older_python_gets_a_clear_error(version: str, zipapp: Path, tmp_path: Path) -> None:
    python = interpreter(version)
    requirements.need(f"Python {version}", python is not None, "pyenv")
    assert python is not None
    done = run(zipapp, tmp_path, "--version", python=python)
    assert done.returncode == 1
    assert f"it has no wheels for Python {version} on {HERE.machine}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"targets": {}}, "it has no wheels for Python"),
        ({"missing": {HERE.name: "no wheel of x"}}, f"no wheels for {HERE.name}: no wheel of x"),
        ({"glibc": [9, 0]}, "it needs glibc 9.0 or newer, and this machine has glibc 2."),
    ],
)
def test_another_machine_gets_a_clear_error(change: dict[str, object], says: str) -> None:
    manifest = {"targets": {HERE.name: []}, "missing": {}, "glibc": list(GLIBC), **change}
    with pytest.raises(launcher.Refused, match=says):
        launcher.target(manifest)


def test_another_c_library_gets_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def musl(name: str) -> str:
        raise ValueError(f"unrecognized configuration name: {name}")

    monkeypatch.setattr(os, "confstr", musl)
    with pytest.raises(launcher.Refused, match="this machine has another C library"):
        launcher.target({"targets": {HERE.name: []}, "missing": {}, "glibc": list(GLIBC)})
