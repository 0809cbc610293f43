"""The wheels of fabmon and of its locked dependencies, for a Python and a machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-runtime.lock"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
GLIBC = (2, 28)
"""The oldest C library that the wheels run with: RHEL 8, Debian 11, Ubuntu 20.04."""

_REQUIREMENT = re.compile(r"^[A-Za-z0-9][^\\\n]*(?:\\\n[^\\\n]*)*", re.MULTILINE)
_MARKER = re.compile(r" ;[^\\\n]*(?= \\)")


class WheelsMissing(Exception):
    """The package index has no wheel of a locked version for a target."""


@dataclass(frozen=True)
class Target:
    """A minor version of CPython and a machine, as `platform.machine()` names it."""

    python: str
    machine: str

    @property
    def name(self) -> str:
        """As in `cp311-x86_64`."""
        return f"cp{self.python.replace('.', '')}-{self.machine}"

    def platforms(self) -> list[str]:
        """Platform tags of wheels that run with GLIBC or later, the newest first."""
        numbered = [f"manylinux_{GLIBC[0]}_{minor}" for minor in range(GLIBC[1], 16, -1)]
        return [f"{tag}_{self.machine}" for tag in [*numbered, "manylinux2014"]]

    def environment(self) -> dict[str, str]:
        """What markers such as `python_full_version < '3.12'` are compared with."""
        return {
            "implementation_name": "cpython",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_system": "Linux",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
        }


def build_time_s() -> int:
    """Every time in a package, in seconds since 1970: SOURCE_DATE_EPOCH, or the start of 2020."""
    return int(os.environ.get("SOURCE_DATE_EPOCH", "1577836800"))


def targets() -> list[Target]:
    """Every supported target."""
    return [Target(python, machine) for python in PYTHONS for machine in MACHINES]


def target_named(name: str) -> Target:
    """The supported target with a name. Raises ValueError with the names that there are."""
    for target in targets():
        if target.name == name:
            return target
    raise ValueError(f"no target {name}: {', '.join(each.name for each in targets())}")


def locked(target: Target, lock: Path = LOCK) -> dict[str, str]:
    """Name -> its text in the lock, with hashes, of the packages that a target needs.

    The markers are left out: pip would compare them with the Python that it runs on.
    """
    found = {}
    for text in _REQUIREMENT.findall(lock.read_text(encoding="utf-8")):
        requirement = Requirement(text.partition("\\")[0].strip())
        marker = requirement.marker
        if marker is None or marker.evaluate(target.environment()):
            found[requirement.name] = _MARKER.sub("", text)
    return found


def download(target: Target, into: Path) -> list[Path]:
    """Download the locked wheels of a target, checked against the hashes of the lock.

    `into` has no other wheels. Raises WheelsMissing with what pip says of a package without one.
    """
    into.mkdir(parents=True, exist_ok=True)
    requirements = into / "requirements.txt"
    needed = locked(target)
    requirements.write_text("\n".join(needed.values()) + "\n", encoding="utf-8")
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    argv += ["--no-deps", "--require-hashes", "--only-binary=:all:", "--implementation", "cp"]
    argv += ["--python-version", target.python, "--dest", str(into), "-r", str(requirements)]
    for platform in target.platforms():
        argv += ["--platform", platform]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise WheelsMissing("; ".join(errors) or done.stderr.strip()[-500:])
    requirements.unlink()
    wheels = sorted(into.glob("*.whl"))
    if len(wheels) != len(needed):
        raise WheelsMissing(f"{len(wheels)} wheels of {len(needed)} packages")
    return wheels
