"""The node half must start quickly, on a machine that has Python and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

CORE = (
    "collectors.catalog",
    "collectors.source",
    "collectors.registry",
    "collectors.wire",
    "collectors.hostfs",
)
SOURCES = tuple(
    f"collectors.{name}"
    for name in (
        "sources.netdev",
        "sources.ib",
        "sources.rdma",
        "sources.ethtool",
        "sources.routes",
        "readers.ports",
        "readers.netlink",
        "readers.ethtool_stats",
    )
)
# What none of the core may bring in: it costs milliseconds at every start on every node.
HEAVY = {"socket", "asyncio", "ctypes", "subprocess", "ssl", "multiprocessing", "logging"}


def loaded_by(modules: tuple[str, ...]) -> set[str]:
    """The modules that a fresh interpreter without site-packages has loaded for them."""
    code = f"import sys, json; before = set(sys.modules); import {', '.join(modules)}"
    code += "; print(json.dumps(sorted(set(sys.modules) - before)))"
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return set(json.loads(done.stdout))


def standard() -> set[str]:
    names = getattr(sys, "stdlib_module_names", None)
    if names is None:
        pytest.skip("Python before 3.10 has no list of its standard library; -S still held")
    return set(names)


def test_the_core_loads_without_any_package_and_without_a_source() -> None:
    loaded = loaded_by(CORE)
    assert set(CORE) <= loaded
    assert not {name for name in loaded if name.startswith("collectors.sources.")}
    assert not HEAVY & loaded


def test_every_source_loads_without_any_package() -> None:
    loaded = loaded_by(SOURCES)
    assert set(SOURCES) <= loaded
    assert not {"asyncio", "ctypes", "subprocess", "ssl", "pyroute2"} & loaded


def test_everything_is_of_the_standard_library() -> None:
    known = standard()
    loaded = {name.partition(".")[0] for name in loaded_by(CORE + SOURCES)}
    assert loaded - known - {"collectors"} <= {"sitecustomize"}
    assert "collectors" in loaded
