"""What a test needs from the machine.

A test that cannot run is skipped, and the reason names the missing part and how to install it. With
``FABMON_NEED_ALL=1`` (the full gate) it fails instead.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest


def need(part: str, present: bool, how: str) -> None:
    """Skip the test (fail it under ``FABMON_NEED_ALL=1``) unless `part` is `present`.

    `how` says how to install the part, as in ``apt-get install iperf3``.
    """
    if present:
        return
    reason = f"needs {part}: {how}"
    if os.environ.get("FABMON_NEED_ALL") == "1":
        pytest.fail(f"{reason} (FABMON_NEED_ALL=1)", pytrace=False)
    pytest.skip(reason)


def need_command(name: str, package: str) -> None:
    """Need an executable called `name` on PATH, which Debian ships in `package`."""
    need(f"the command {name}", shutil.which(name) is not None, f"apt-get install {package}")


def need_root() -> None:
    """Need to run as root (network namespaces cannot be made otherwise)."""
    need("root", os.geteuid() == 0, "run the tests as root, or in a privileged container")


def need_path(path: str, how: str) -> None:
    """Need a file that only some kernels have, such as a sysctl under /proc/sys."""
    need(path, Path(path).exists(), how)


def heeding_signals(argv: Sequence[str]) -> list[str]:
    """`argv` run with signals at their defaults: a suite in the background has some ignored."""
    return ["env", "--default-signal", *argv]


def need_package(name: str) -> None:
    """Need a Python package of the development group, for the whole module of a test."""
    if importlib.util.find_spec(name) is None:
        reason = f"needs the package {name}: make setup"
        if os.environ.get("FABMON_NEED_ALL") == "1":
            pytest.fail(f"{reason} (FABMON_NEED_ALL=1)", pytrace=False)
        pytest.skip(reason, allow_module_level=True)
