"""What is wrong on the kernel's own fabric is told, with its cause and subject, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.lab import play
from tests.lab.play import Outcome
from tests.requirements import need_command, need_path


pytestmark = pytest.mark.timeout(900)  # Each waits for those that are played before it.


@pytest.fixture(scope="session")
def outcomes(
    request: pytest.FixtureRequest, lab_parts: None
) -> Iterator[dict[Path, Future[Outcome]]]:
    """What becomes of the scenarios that are to be tested, some at a time."""
    need_command("ethtool", "ethtool")
    need_path("/dev/net/tun", "a Linux kernel with CONFIG_TUN and CONFIG_MACVLAN")
    names = {each.name for each in request.session.items if each.path == Path(__file__)}
    wanted = [path for path in play.paths() if f"test_scenario[{path.stem}]" in names]
    with play.playing(wanted) as futures:
        yield futures


@pytest.mark.parametrize("path", play.paths(), ids=lambda path: path.stem)
def test_scenario(path: Path, outcomes: dict[Path, Future[Outcome]]) -> None:
    outcome = outcomes[path].result()
    assert outcome.happened, f"it did not happen as planned: {outcome.story}"
    assert outcome.is_right, outcome.story
