"""A directory of more recordings than a process may have open files.

FABMON_MANY_FILES is how many; from 1,000 on with 256 open files, else 64.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fabmon.recording.reading.timeline import Timeline
from tests.builders import SECOND_NS, START_NS
from tests.unit.recording.builders import quiet_ticks, write

FILES = int(os.environ.get("FABMON_MANY_FILES", "200"))
OPEN_FILES = 64 if FILES < 1000 else 256


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file an hour, of two ticks each."""
    directory = tmp_path_factory.mktemp("many")
    ticks = quiet_ticks(2)
    for hour in range(FILES):
        shifted = [
            msgspec.structs.replace(t, time_ns=t.time_ns + hour * 3600 * SECOND_NS) for t in ticks
        ]
        write(directory / f"pod-{hour:05d}.fabrec", shifted)
    return directory


def test_every_tick_of_many_files_is_read_in_order(recordings: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = len(list(Path("/proc/self/fd").iterdir())) + 30
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, limit[1]))
    try:
        with Timeline([recordings]) as timeline:
            times_ns = [tick.time_ns for tick in timeline.ticks()]
            assert len(timeline.hosts) == len(quiet_ticks(1)[0].hellos)
            assert not timeline.losses
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert times_ns == [
        START_NS + (3600 * hour + second) * SECOND_NS for hour in range(FILES) for second in (0, 1)
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["replay", "{}", "--once"],
        ["cut", "{}", "--from", "+1h", "--to", "+3h", "-o", "{out}/cut.fabrec"],
        ["query", "findings", "{}"],
        ["report", "{}", "--from", "+1h", "--to", "+2h", "-o", "{out}/report.html"],
        ["export", "{}", "--format", "csv", "--from", "+1h", "--to", "+2h"],
    ],
    ids=lambda each: each[0],
)
def test_a_command_reads_many_files(recordings: Path, tmp_path: Path, arguments: list[str]) -> None:
    def limit_open_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))

    filled = [
        each.replace("{out}", str(tmp_path)).replace("{}", str(recordings)) for each in arguments
    ]
    done = subprocess.run(
        [sys.executable, "-m", "fabmon", *filled],
        capture_output=True,
        text=True,
        preexec_fn=limit_open_files,
        check=False,
    )
    usual = ("fabmon: wrote ", "fabmon: it begins two ticks before ")
    said = [line for line in done.stderr.splitlines() if not line.startswith(usual)]
    assert (done.returncode, said) == (0, [])
