"""What is wrong on the kernel's own fabric is found, with its cause and subject, and no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.lab import play
from tests.lab.play import Outcome
from tests.lab.playing import playing
from tests.requirements import need_command, need_path

# Each waits for those that are played before it.
pytestmark = [pytest.mark.waits, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def played(
    request: pytest.FixtureRequest, lab_parts: None
) -> Iterator[Mapping[Path, Future[Outcome]]]:
    """The scenarios that are to be tested, each on its own lab."""
    need_command("ethtool", "ethtool")
    need_path("/dev/net/tun", "a Linux kernel with CONFIG_TUN and CONFIG_MACVLAN")
    names = {item.name for item in request.session.items}
    with playing([p for p in play.paths() if f"test_scenario[{p.stem}]" in names]) as futures:
        yield futures


@pytest.mark.parametrize("path", play.paths(), ids=lambda path: path.stem)
def test_scenario(path: Path, played: Mapping[Path, Future[Outcome]]) -> None:
    outcome = played[path].result()
    print(outcome.story)
    assert outcome.happened, f"it did not happen as planned: {outcome.story}"
    assert outcome.is_right, outcome.story
