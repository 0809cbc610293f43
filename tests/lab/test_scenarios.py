"""What is wrong on the kernel's own fabric is told, with its cause and subject, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import play, scenario
from tests.requirements import need_command, need_path

pytestmark = pytest.mark.usefixtures("lab_parts")


@pytest.fixture(autouse=True)
def _wire_parts() -> None:
    need_command("ethtool", "ethtool")
    need_path("/dev/net/tun", "a Linux kernel with CONFIG_TUN and CONFIG_MACVLAN")


@pytest.mark.parametrize("path", play.paths(), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    outcome = play.play(scenario.read(path))
    assert outcome.happened, f"by the kernel's counters: {sorted(map(str, outcome.truth))}"
    assert {each.what for each in outcome.told} == outcome.truth, outcome.told
    assert outcome.is_right, f"told more than once: {outcome.told}"
