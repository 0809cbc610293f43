"""Deferred sources: found on every host that has their hardware, else not imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from collectors.hostfs import HostFS
from collectors.loop.source_loader import make_source
from collectors.registry import SOURCES
from collectors.source import NoData, SourceError
from tests.fixtures import hosts, nvml
from tests.fixtures.reading import read, source

DEFERRED = [name for name, entry in SOURCES.items() if entry.needs]


@pytest.mark.parametrize("name", sorted(hosts.HOSTS))
def test_what_a_host_has_is_found_by_the_paths_that_are_waited_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(nvml.VARIABLE, str(tmp_path / nvml.SCENARIO))
    hosts.HOSTS[name](tmp_path)
    for each in DEFERRED:
        asked = source(each, tmp_path)
        try:
            objects = asked.discover()
        except SourceError:
            continue
        finally:
            asked.close()
        waiting = make_source(each, HostFS(str(tmp_path)))
        assert waiting.discover() == objects
        assert (waiting.every, waiting.deadline_s) == (asked.every, asked.deadline_s)
        read(waiting, objects)
        waiting.close()


def test_hardware_that_comes_later_is_seen(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    waiting = make_source("ib", HostFS(str(tmp_path)))
    before = waiting.signature()
    with pytest.raises(NoData, match="no /sys/class/infiniband"):
        waiting.discover()
    hosts.ib_host(tmp_path, hcas=1)
    assert waiting.signature() != before
    assert [item.id for item in waiting.discover()] == ["mlx5_0"]
    waiting.close()


def test_a_machine_without_the_hardware_imports_none_of_it(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, "collectors", "--once", "--root", str(tmp_path)],
        capture_output=True,
        check=True,
        text=True,
    )
    imported = set(done.stderr.split())
    assert "collectors.sources.netdev" in imported
    assert not imported & {SOURCES[each].factory.partition(":")[0] for each in DEFERRED}


_PROBE = """
import os, runpy, sys
sys.argv[:] = sys.argv[1:]
leave = os._exit
def report(status):
    print(*sys.modules, file=sys.stderr, flush=True)
    leave(status)
os._exit = report
runpy.run_module("collectors", None, "__main__", True)
"""
"""The probe, which prints at its end the modules that it has imported."""
