"""Wheels made again from what is installed beside the tests: packages without a network."""

from __future__ import annotations

import platform
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

from release.wheels import ROOT, Target, locked

HERE = Target(f"{sys.version_info[0]}.{sys.version_info[1]}", platform.machine())
"""What the tests run on."""
PYTHON: str = getattr(sys, "_base_executable", sys.executable)
"""The Python beneath the tests' environment, which has none of its packages."""


def wheel_of(installed: Distribution, into: Path) -> Path:
    """A wheel with the installed modules of a distribution and its metadata, not its scripts."""
    about = installed.read_text("WHEEL") or ""
    tag = next(line.partition(": ")[2] for line in about.splitlines() if line.startswith("Tag: "))
    name = installed.metadata["Name"].replace("-", "_").replace(".", "_")
    wheel = into / f"{name}-{installed.version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in installed.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                archive.write(str(file.locate()), str(file))
    return wheel


def dependencies(into: Path) -> list[Path]:
    """Wheels of all that fabmon needs on this machine, as installed here."""
    into.mkdir(parents=True, exist_ok=True)
    return [wheel_of(distribution(name), into) for name in locked(HERE)]


def build(into: Path, *, source: Path = ROOT, umask: int = 0o022, kind: str = "wheel") -> Path:
    """Build fabmon's wheel, or its `sdist`, from the checkout or from an unpacked sdist."""
    argv = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(into)]
    environment = {"SOURCE_DATE_EPOCH": "1700000000", "PATH": "/usr/bin:/bin"}
    subprocess.run(argv, cwd=source, env=environment, umask=umask, capture_output=True, check=True)
    (built,) = into.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built
