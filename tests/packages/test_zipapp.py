"""The single file with the wheels of the package index, for every Python that this machine has."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

import fabmon
from release.wheels import PYTHONS, targets
from tests import requirements
from tests.fixtures.interpreters import interpreter


@pytest.mark.timeout(600)
def test_it_has_the_wheels_of_every_target(zipapp: Path) -> None:
    names = zipfile.ZipFile(zipapp).namelist()
    for target in targets():
        (numpy,) = [
            name for name in names
            if "numpy" in name and f"-{target.name[:5]}-" in name and target.machine in name
        ]  # fmt: skip
        assert numpy


@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", ["system", *PYTHONS])
def test_it_runs(version: str, zipapp: Path, clean_home: dict[str, str]) -> None:
    python = "/usr/bin/python3" if version == "system" else interpreter(version)
    requirements.need(f"Python {version}", python is not None, "pyenv")
    assert python is not None
    argv = [python, str(zipapp)]
    shown = subprocess.check_output([*argv, "--version"], env=clean_home, text=True)
    assert shown == f"fabmon, version {fabmon.__version__}\n"
    argv += ["demo", "--once"]
    demo = subprocess.run(argv, env=clean_home, capture_output=True, text=True, check=False)
    assert (demo.returncode, "SIMULATED" in demo.stderr) == (0, True), demo.stderr
