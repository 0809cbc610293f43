"""config/fabmon-agent.service, as systemd itself judges it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.requirements import need_command
from tests.unit.agent.agent_process import FABMON

UNIT = Path(__file__).parents[3] / "config" / "fabmon-agent.service"


def systemd_analyze(*arguments: str) -> str:
    """What it says; a failure is one."""
    need_command("systemd-analyze", "systemd")
    done = subprocess.run(
        ["systemd-analyze", "--man=no", *arguments], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_systemd_has_nothing_to_say_about_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/bin/fabmon", FABMON))
    assert systemd_analyze("verify", str(unit)) == ""


def test_the_service_can_do_little_beside_reading() -> None:
    # Tenths of systemd's scale from 0, locked in, to 10.
    systemd_analyze("security", "--offline=true", "--threshold=20", str(UNIT))
