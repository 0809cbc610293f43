"""`python -m tests.run_again NAMES ARGUMENTS`: pytest, and what failed once more, alone.

A test that fails beside others and passes alone is named at the end and in the file NAMES, and the
run passes. A run with more than ten failures fails at once, as does one in which a test could not
be collected, and one that was stopped.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

MOST = 10
_OUTCOMES, _ONLY = "--write-outcomes", "--only-failed-of"


def main(names: Path, arguments: list[str]) -> int:
    """Returns pytest's exit status."""
    with tempfile.TemporaryDirectory() as directory:
        first, again = Path(directory, "first"), Path(directory, "again")
        status = _pytest(*arguments, f"{_OUTCOMES}={first}")
        if status != pytest.ExitCode.TESTS_FAILED or not first.exists():
            return status
        outcomes = json.loads(first.read_text())
        failed = outcomes["failed"]
        if not outcomes["is_whole"] or not 0 < len(failed) <= MOST:
            return status
        print(f"\nrun again, alone: {', '.join(failed)}", flush=True)
        options = ["-n", "0", "--dist", "no", f"{_ONLY}={first}", f"{_OUTCOMES}={again}"]
        if _pytest(*arguments, *options):
            return status
        if not set(failed) <= set(json.loads(again.read_text())["passed"]):
            return status
    listed = "".join(f"\n  {name}" for name in failed)
    said = f"\npassed only when run again alone:{listed}\n"
    print(said, end="", flush=True)
    with names.open("a") as file:
        file.write(said)
    return 0


def _pytest(*arguments: str) -> int:
    with subprocess.Popen([sys.executable, "-m", "pytest", "-p", __spec__.name, *arguments]) as run:
        # The terminal sends ctrl+c to both: pytest tears down, then this ends.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda number, _: run.send_signal(number))
        return run.wait()


class _Outcomes:
    """Which tests failed and which passed, as JSON in a file. Not whole: not all were run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, dict[str, None]] = {"failed": {}, "passed": {}}
        self._is_whole = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or (report.passed and report.when == "call"):
            self._outcomes[report.outcome][report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._is_whole &= not report.failed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        is_whole = self._is_whole and not session.shouldfail and not session.shouldstop
        lists = {name: sorted(tests) for name, tests in self._outcomes.items()}
        self._path.write_text(json.dumps({"is_whole": is_whole, **lists}))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OUTCOMES, type=Path, help="where to write which tests failed")
    parser.addoption(_ONLY, type=Path, help="run what failed in these outcomes")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption(_OUTCOMES)
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Outcomes(path))


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    path = config.getoption(_ONLY)
    if path is not None:
        failed = set(json.loads(path.read_text())["failed"])
        config.hook.pytest_deselected(items=[each for each in items if each.nodeid not in failed])
        items[:] = [each for each in items if each.nodeid in failed]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
