"""The systemd unit of the recorder agrees with what fabmon does."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.unit.recording.builders import quiet_ticks, write

UNIT = Path(__file__).parents[2] / "config" / "fabmon-record.service"


@pytest.fixture
def service() -> dict[str, str]:
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read(UNIT)
    return dict(parser["Service"])


def test_its_umask_and_directory_give_nobody_more_than_the_mode_of_recordings(
    service: dict[str, str], tmp_path: Path
) -> None:
    write(tmp_path / "a.fabrec", quiet_ticks(1))
    mode = (tmp_path / "a.fabrec").stat().st_mode & 0o777
    assert 0o666 & ~int(service["UMask"], 8) == mode
    assert int(service["StateDirectoryMode"], 8) & 0o077 == 0
