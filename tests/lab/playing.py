"""Plays scenarios, some at a time, each on a lab of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.lab.play import Outcome, TooBusyError, play
from tests.lab.scenario import Scenario, read

AT_ONCE = 3
"""Labs that two cores carry beside one of other tests: each takes a fifth of one."""

_ATTEMPTS = 3


@contextmanager
def playing(
    paths: Sequence[Path], at_once: int = AT_ONCE
) -> Iterator[Mapping[Path, Future[Outcome]]]:
    """Play scenarios, the longest first, so that none is left alone at the end."""
    scenarios = {path: read(path) for path in paths}
    longest_first = sorted(paths, key=lambda path: -scenarios[path].expect.seconds)
    with ThreadPoolExecutor(at_once) as pool:
        futures = {path: pool.submit(_as_planned, scenarios[path]) for path in longest_first}
        try:
            yield {path: futures[path] for path in paths}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _as_planned(scenario: Scenario) -> Outcome:
    """The first of up to three attempts in which the kernel did what the scenario is about, else
    the last one. Raises TooBusyError if the counters could not be read in the last one.

    Only the kernel's counters decide on another attempt, never what fabmon found.
    """
    for attempt in range(1, _ATTEMPTS):
        try:
            outcome = play(scenario, attempt)
        except TooBusyError:
            continue
        if outcome.happened:
            return outcome
    return play(scenario, _ATTEMPTS)
