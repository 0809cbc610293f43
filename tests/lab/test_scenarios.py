"""What is wrong on the kernel's own fabric is found, with its cause and subject, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab import play
from tests.lab.playing import Played
from tests.requirements import need_command, need_path

pytestmark = pytest.mark.timeout(900)  # Each waits for those that are played before it.


@pytest.fixture(autouse=True)
def _wire_parts() -> None:
    need_command("ethtool", "ethtool")
    need_path("/dev/net/tun", "a Linux kernel with CONFIG_TUN and CONFIG_MACVLAN")


@pytest.mark.parametrize("path", play.paths(), ids=lambda path: path.stem)
def test_scenario(path: Path, played: Played) -> None:
    outcome = played.scenarios[path].result()
    print(outcome.story)
    assert outcome.happened, f"it did not happen as planned: {outcome.story}"
    assert outcome.is_right, outcome.story
