"""The systemd units agree with what fabmon does."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

import click
import pytest

from fabmon.cli.main import Commands, cli
from tests.unit.recording.builders import quiet_ticks, write

CONFIG = Path(__file__).parents[2] / "config"
UNITS = ["fabmon-record", "fabmon-watch"]


@pytest.fixture(params=UNITS)
def service(request: pytest.FixtureRequest) -> dict[str, str]:
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read(CONFIG / f"{request.param}.service")
    return dict(parser["Service"])


def test_its_command_has_these_options(service: dict[str, str]) -> None:
    words = service["ExecStart"].replace("\\\n", " ").split()
    command = Commands().get_command(click.Context(cli), words[1])
    assert command is not None
    known = {option for each in command.params for option in each.opts}
    assert {word for word in words[2:] if word.startswith("-")} <= known


def test_its_umask_and_directory_give_nobody_more_than_the_mode_of_recordings(
    service: dict[str, str], tmp_path: Path
) -> None:
    write(tmp_path / "a.fabrec", quiet_ticks(1))
    mode = (tmp_path / "a.fabrec").stat().st_mode & 0o777
    assert 0o666 & ~int(service["UMask"], 8) == mode
    assert int(service["StateDirectoryMode"], 8) & 0o077 == 0
