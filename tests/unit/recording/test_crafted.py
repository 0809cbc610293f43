"""Small files that claim to be large are refused at an offset, with little memory and in time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.recording.crafted import CASES, interval

CPU_S = 120.0
MEMORY_BYTES = 5 << 28
"""1.25 GiB: two blocks at a time take 0.9 to 1.1 GiB, as threads happen to overlap.

Without limits these files take up to 9 GB, or hours.
"""


def read(path: Path) -> tuple[str, float, int]:
    """Read a file in a process of its own: what it printed, its CPU time, its memory."""
    command = [sys.executable, "-m", "tests.unit.recording.crafted", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        text = process.stdout.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, text
    *lines, memory_kb = text.splitlines()
    return "\n".join(lines), usage.ru_utime + usage.ru_stime, int(memory_kb) * 1024


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CASES)
def test_a_small_file_that_claims_to_be_large_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "crafted.fabrec"
    path.write_bytes(CASES[name]())
    text, cpu_s, memory_bytes = read(path)
    assert path.stat().st_size < 1 << 20
    assert cpu_s < CPU_S
    assert memory_bytes < MEMORY_BYTES
    whole = ("large_block", "index_of_frames", "index_beyond_the_end")
    assert name in whole or "byte " in text or "damaged" in text, text


@pytest.mark.parametrize("value", [b"1e300", b"1e-300", b"0", b"-1", b"1e999"])
def test_an_impossible_interval_is_damage(tmp_path: Path, value: bytes) -> None:
    path = tmp_path / "crafted.fabrec"
    path.write_bytes(interval(value))
    text, _, _ = read(path)
    assert "damaged: no frame of it can be read" in text
