"""Packages as people install them. They need the package registries, and some need root.

`make test-packages` runs them; the ordinary suite makes the same packages without a network
(tests/unit/release).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from release.wheels import ROOT, targets
from tests import installed_wheels, requirements
from tests.packages import chroot


@pytest.fixture(scope="session", autouse=True)
def _registry() -> None:
    argv = [sys.executable, "-m", "pip", "index", "versions", "click"]
    answered = subprocess.run(argv, capture_output=True, check=False).returncode == 0
    requirements.need("the Python package index", answered, "a network, or pip's settings")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """fabmon's wheel, from this checkout."""
    return installed_wheels.build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def clean_home(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with nothing in the home directory, who reaches the registries."""
    return {**os.environ, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}


@pytest.fixture(scope="session")
def deb(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Debian package, with wheels of the package index."""
    home = tmp_path_factory.mktemp("deb")
    argv = [sys.executable, "-m", "release.deb", str(wheel), str(home)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(argv, cwd=home, env=environment, check=True, capture_output=True)
    (made,) = home.glob("*.deb")
    return made


@pytest.fixture(scope="session")
def zipapp(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The single file, with the wheels of every target."""
    home = tmp_path_factory.mktemp("zipapp")
    argv = [sys.executable, "-m", "release.zipapp", str(wheel), str(home / "fabmon.pyz")]
    made = subprocess.run(
        argv,
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(target.name in made.stdout for target in targets()), made.stderr
    return home / "fabmon.pyz"


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Debian without fabmon, with Python, an ssh server, man and three shells."""
    root = tmp_path_factory.mktemp("debian") / "root"
    chroot.make(root, *chroot.INCLUDED)
    return root
