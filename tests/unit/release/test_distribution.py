"""The wheel and the sdist: what is in them, the same bytes every time, and that the wheel runs."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import fabmon
from fabmon.cli.manual import manual_pages
from release.wheels import ROOT, locked, targets
from tests import installed_wheels
from tests.unit.test_dependencies import EXTRAS, PROJECT


def metadata(wheel: Path) -> Message:
    name = f"fabmon-{fabmon.__version__}.dist-info/METADATA"
    return Parser().parsestr(zipfile.ZipFile(wheel).read(name).decode())


def test_the_version_has_one_place(wheel: Path) -> None:
    pattern = re.compile(r"^(__version__|version) = ", re.MULTILINE)
    sources = [
        *ROOT.glob("fabmon/**/*.py"),
        *ROOT.glob("collectors/**/*.py"),
        ROOT / "pyproject.toml",
    ]
    places = [path for path in sources if pattern.search(path.read_text())]
    assert places == [ROOT / "collectors" / "__init__.py"]
    assert metadata(wheel)["Version"] == fabmon.__version__
    newest = (ROOT / "CHANGELOG.md").read_text().partition("\n## ")[2]
    assert newest.startswith(f"{fabmon.__version__} - ")


def test_the_wheel_has_the_program_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {
        "fabmon", "collectors",
        f"fabmon-{fabmon.__version__}.dist-info", f"fabmon-{fabmon.__version__}.data",
    }  # fmt: skip
    assert {"fabmon/session/thresholds.toml", "fabmon/session/fabmon.example.toml"} <= set(names)
    assert set(metadata(wheel).get_all("Provides-Extra", [])) == set(
        PROJECT["optional-dependencies"]
    )
    assert len(metadata(wheel).get_all("Requires-Dist", [])) == len(
        sum(EXTRAS, PROJECT["dependencies"])
    )


def test_the_wheel_has_the_manual_pages_of_its_commands(wheel: Path) -> None:
    home = f"fabmon-{fabmon.__version__}.data/data/"
    archive = zipfile.ZipFile(wheel)
    assert {
        name.removeprefix(home): archive.read(name).decode()
        for name in archive.namelist()
        if name.startswith(home)
    } == {f"share/man/man1/{name}": text for name, text in manual_pages()}


def test_an_installed_wheel_has_its_pages_where_man_looks(clean: Path) -> None:
    pages = clean.parent / "share/man/man1"
    assert {path.name for path in pages.iterdir()} == {name for name, _ in manual_pages()}


def test_two_builds_are_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    sdist = installed_wheels.build(tmp_path / "one", kind="sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.glob("fabmon-*")
    (source / "PKG-INFO").unlink()  # a checkout has none
    again = installed_wheels.build(tmp_path / "two", source=source, umask=0o077)
    assert again.read_bytes() == wheel.read_bytes()
    again = installed_wheels.build(tmp_path / "two", source=source, umask=0o077, kind="sdist")
    assert again.read_bytes() == sdist.read_bytes()


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with nothing but fabmon's wheel and what it needs."""
    home = tmp_path_factory.mktemp("clean")
    venv.create(home, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install"]
    pip += ["--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    (packages,) = home.glob("lib/python3*/site-packages")
    for each in installed_wheels.dependencies(home / "wheels"):
        zipfile.ZipFile(each).extractall(packages)
    return home / "bin"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--version"], f"fabmon, version {fabmon.__version__}"),
        (["demo", "--once"], "SIMULATED"),
        (["config"], "fabmon.toml"),
        (["need", "--params", "7B", "--dp", "64"], "GB"),
    ],
)
def test_the_wheel_runs_in_a_clean_environment(
    clean: Path, arguments: list[str], expected: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [clean / "fabmon", *arguments],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert expected in done.stdout + done.stderr
    assert done.returncode == 0


def test_its_modules_are_not_those_of_the_checkout(clean: Path, tmp_path: Path) -> None:
    code = "import fabmon, collectors; print(fabmon.__file__, collectors.__file__)"
    done = subprocess.run(
        [clean / "python", "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert all(path.startswith(str(clean.parent)) for path in done.stdout.split())
    assert len(done.stdout.split()) == 2


def test_what_packages_ship_is_what_was_tested() -> None:
    tested = re.findall(r"(?m)^\S+==\S+", (ROOT / "requirements.lock").read_text())
    for target in targets():
        pins = {text.split()[0]: text for text in locked(target).values()}
        assert set(pins) <= set(tested)
        assert {"numpy", "asyncssh", "textual", "cryptography"} <= set(locked(target))
        assert all(re.match(r"\S+ \\\n +--hash=sha256:", text) for text in pins.values())
