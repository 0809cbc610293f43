"""Fixtures of all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

_GARBAGE_OBJECTS = 20_000
"""New objects after which the garbage collector looks for cycles. With Python's 700 it visited all
that ten thousand tests consist of again and again: a fifth of the CPU time of a test of the
screen."""
gc.set_threshold(_GARBAGE_OBJECTS, 10, 10)

# A shell without job control has what it starts in the background ignore ctrl+c, and so would all
# programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have what waits for minutes begin first: others use the processors meanwhile."""
    items.sort(key=lambda item: item.get_closest_marker("waits") is None)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the garbage collector need not visit it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def state_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Error logs and tokens go to a directory of the test run, not to that of the user."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    yield
    if before is None:
        del os.environ["XDG_STATE_HOME"]
    else:
        os.environ["XDG_STATE_HOME"] = before


@pytest.fixture
def unchanged_collector() -> Iterator[None]:
    """What a `GarbageSchedule` sets and freezes ends with the test."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()
    gc.collect()
    gc.freeze()
