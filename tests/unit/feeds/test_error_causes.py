"""The causes of errors of nodes: one vocabulary in the code and in docs/hosts-file.md."""

from __future__ import annotations

import ast
import errno
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabmon.feeds import errors
from fabmon.feeds.errors import NO_CONNECTION, NodeError, connect_error

ROOT = Path(__file__).parents[3]
CLASSES = {
    name: each
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, NodeError)
}


def documented() -> set[str]:
    """The words in the first column of the table of causes."""
    page = (ROOT / "docs" / "hosts-file.md").read_text(encoding="utf-8")
    table = page.partition("| cause | what happened |")[2].partition("\n\n")[0]
    firsts = (row.split("|")[1] for row in table.splitlines()[2:])
    return {word for first in firsts for word in re.findall(r"`([^`]+)`", first)}


def used() -> Iterator[str]:
    """The causes of all errors that are made anywhere in the code."""
    for path in (ROOT / "fabmon" / "feeds").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            if call.func.id not in CLASSES:
                continue
            given = call.args[1] if len(call.args) > 1 else None
            if given is None:
                yield CLASSES[call.func.id].cause
            elif isinstance(given, ast.Constant):
                yield str(given.value)


def test_every_cause_is_in_the_table_of_the_hosts_file_page() -> None:
    assert {*used(), *errors.CHECKS} - documented() == set()


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (errno.EHOSTUNREACH, "no route"),
        (errno.EHOSTDOWN, "no route"),
        (errno.ECONNREFUSED, "refused"),
        (errno.EADDRNOTAVAIL, NO_CONNECTION),
    ],
)
def test_the_cause_of_a_connection_that_fails_is_in_the_table(number: int, cause: str) -> None:
    error = connect_error(OSError(number, "why"), "gpu001:22")
    assert error.cause == cause
    assert cause in documented()
