"""No pattern takes more than linear time on what nodes, logs or files contain: each is pumped.

From the parse tree of a pattern come texts that it nearly matches: what precedes a repetition, then
what is repeated, or another character, thousands of times, then an end that fails.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
import pytest

import collectors
import fabmon
from collectors.inspector_records import JOB_DIRECTORY, LOG_NAME
from collectors.readers.ethtool_names import RULES
from fabmon.analysis.job_log.failure_fields import _PEERS
from fabmon.analysis.job_log.line_filter import MAX_PIECE
from fabmon.feeds.inspector.reports import _NAME
from fabmon.feeds.scrape.exporter_tables import exporter_tables

Text = str | bytes
Pattern = re.Pattern[Any]

ALPHABET = "a1 Af.:-_[](){}<>\"'=,/|\\#@+*?;~\n\t\x1b\x00!é"
ENDS = ("!", "", "\n")
GIVEN_TO = {LOG_NAME: "fullmatch", _NAME: "fullmatch", JOB_DIRECTORY: "fullmatch"}
"""Patterns that another module uses, and how; others of which that is not seen are searched for."""
REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
METHODS = ("match", "fullmatch", "search")
ALL = ("sub", "subn", "split", "findall", "finditer")
"""Methods that go on after a match: `search` from every place is as slow as they are."""

FEW, SOME, MANY = 24, 1_000, 32_000
"""Repetitions: of an exponential pattern, of one to look at more closely, characters of one that is
quadratic."""
EXPONENTIAL_S = 0.02
"""CPU time for FEW: others take a thousandth."""
SUSPICIOUS_S = 0.0005
"""CPU time for SOME: a quadratic pattern takes more, and so do some that are linear."""
MOST_S = 0.25
"""CPU time for MANY: a pattern with long bounded repetitions takes a third, a quadratic one more
than twice as much."""
FAR_ABOVE = 8
"""Times the most that a try may take: no busy machine, so it is not repeated."""
CUT = {
    "fabmon.analysis.job_log": MAX_PIECE,
    "collectors.sources.kernel_log": 1000,
    "collectors.catalog.kernel_log": 1000,
}
"""Modules that read the beginning of a line only, or pieces of it: so many characters."""
MOST_OF_CUT_S = 0.02
"""CPU time for so many characters; a quadratic pattern, of each character, takes more."""


class Use(NamedTuple):
    """A pattern, and how it is used: `match`, `fullmatch` or `search`."""

    pattern: Pattern
    method: str


def modules() -> Iterator[ModuleType]:
    for package in (fabmon, collectors):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def patterns_in(value: object, depth: int = 4) -> Iterator[Pattern]:
    """The patterns in a value, in tables and in records too."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth and not isinstance(value, (str, bytes, type)):
        inside: Iterable[object] = ()
        if isinstance(value, Mapping):
            inside = (*value.keys(), *value.values())
        elif isinstance(value, (Sequence, set, frozenset)):
            inside = value
        elif isinstance(value, msgspec.Struct):
            inside = msgspec.structs.astuple(value)
        for each in inside:
            yield from patterns_in(each, depth - 1)


def uses() -> dict[Use, str]:
    """Every use of a pattern, and the module in which it is."""
    found: dict[Use, str] = {}
    called: set[Pattern] = set()
    everywhere: dict[Pattern, str] = {}
    for module in modules():
        own = vars(module)
        for value in own.values():
            for pattern in patterns_in(value):
                everywhere.setdefault(pattern, module.__name__)
        if module.__file__ is None:
            continue
        with open(module.__file__) as source:  # noqa: PTH123
            tree = ast.parse(source.read())
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            method, target = node.func.attr, node.func.value
            method = "search" if method in ALL else method
            if method not in METHODS or not isinstance(target, ast.Name):
                continue
            value = own.get(target.id)
            if isinstance(value, re.Pattern):
                called.add(value)
                found.setdefault(Use(value, method), module.__name__)
            elif value is re and isinstance(node.args[0], ast.Constant):
                text: Any = node.args[0].value
                written = re.compile(text)
                found.setdefault(Use(written, method), module.__name__)
    for pattern, name in everywhere.items():
        if pattern not in called:
            found.setdefault(Use(pattern, GIVEN_TO.get(pattern, "search")), name)
    for text in texts_of_tables():
        found.setdefault(Use(re.compile(text), "fullmatch"), "tables")
    return found


def texts_of_tables() -> Iterator[str]:
    """The patterns that are texts in tables: of counters, and of exporters' labels."""
    for rules in RULES.values():
        yield from (text for text, _ in rules)
    for table in exporter_tables().by_name.values():
        for group in table.groups:
            for patterns in (group.patterns, group.match, group.skip):
                yield from patterns.values()
            for rows in group.metrics().values():
                yield from (text for row in rows for text in row.match.values())


def sample(items: Iterable[tuple[Any, Any]]) -> str:
    """A text that items of a parse tree match; of alternatives the first."""
    return "".join(map(sample_of, items))


def sample_of(item: tuple[Any, Any]) -> str:
    """A text that an item matches."""
    kind, value = item
    if kind is _constants.LITERAL:
        return chr(value)
    if kind in (_constants.NOT_LITERAL, _constants.IN, _constants.ANY):
        one = _parser.SubPattern(_parser.State(), [item])
        compiled = _compiler.compile(one)
        characters = (*ALPHABET, *map(chr, range(256)))
        return next((each for each in characters if compiled.match(each)), "")
    if kind in REPEATS:
        return sample(value[2]) * int(max(1, value[0]))
    if kind is _constants.SUBPATTERN:
        return sample(value[-1])
    if kind is _constants.ATOMIC_GROUP:
        return sample(value)
    if kind is _constants.BRANCH:
        return sample(value[1][0])
    return ""


Items = Iterable[tuple[Any, Any]]


def repetitions(items: Items, before: str = "") -> Iterator[tuple[str, Items]]:
    """What precedes each long repetition, and what it repeats."""
    for item in items:
        kind, value = item
        if kind in REPEATS:
            if value[1] > FEW:
                yield before, value[2]
            yield from repetitions(value[2], before)
        elif kind is _constants.SUBPATTERN:
            yield from repetitions(value[-1], before)
        elif kind is _constants.ATOMIC_GROUP:
            yield from repetitions(value, before)
        elif kind is _constants.BRANCH:
            for branch in value[1]:
                yield from repetitions(branch, before)
        elif kind in (_constants.ASSERT, _constants.ASSERT_NOT):
            yield from repetitions(value[1], before)
        before += sample_of(item)


def attacks(pattern: Pattern) -> Iterator[tuple[str, str]]:
    """Beginnings, and what to repeat behind each: what is repeated there, the whole, and every
    character that is repeated anywhere; the beginnings themselves, too."""
    text = pattern.pattern
    text = text if isinstance(text, str) else text.decode("latin-1")
    tree = _parser.parse(text, pattern.flags & ~re.UNICODE)
    found = list(repetitions(tree))
    bodies = [_compiler.compile(_parser.SubPattern(tree.state, [*body])) for _, body in found]
    repeated = [each for each in ALPHABET if any(body.match(each) for body in bodies)]
    starts = [start for start, _ in found]
    for before in dict.fromkeys(["", *starts]):
        own = [sample(body) for start, body in found if start == before]
        own += starts if not before else []
        for pump in dict.fromkeys([*own, sample(tree), *repeated]):
            if pump:
                yield before, pump


def seconds(matches: Callable[[Text], object], text: Text, most_s: float) -> float:
    """The least CPU time of three tries; of fewer, if one is below `most_s` or far above it."""
    times: list[float] = []
    while not times or (len(times) < 3 and most_s < min(times) < FAR_ABOVE * most_s):
        start_s = time.process_time()
        matches(text)
        times.append(time.process_time() - start_s)
    return min(times)


def slow_text(use: Use, most_chars: int | None = None) -> tuple[str, str, str] | None:
    """What makes a use of a pattern take more than linear time; None if nothing does.

    Of texts that are cut to `most_chars` before, what makes it take long.
    """
    matches = getattr(use.pattern, use.method)
    most_s = MOST_S if most_chars is None else MOST_OF_CUT_S
    is_bytes = isinstance(use.pattern.pattern, bytes)

    def is_slower(text: str, most_s: float) -> bool:
        text = text[:most_chars]
        given: Text = text.encode("latin-1", "replace") if is_bytes else text
        return seconds(matches, given, most_s) > most_s

    for before, pump in attacks(use.pattern):
        for end in ENDS:
            if is_slower(before + pump * FEW + end, EXPONENTIAL_S) or (
                is_slower(before + pump * SOME + end, SUSPICIOUS_S)
                and is_slower(before + pump * max(MANY // len(pump), MANY // 5) + end, most_s)
            ):
                return before, pump, end
    return None


def test_every_pattern_takes_linear_time() -> None:
    found = uses()
    assert len(found) > 300, "the patterns are found"
    slow = {}
    for use, module in found.items():
        cut = [most for name, most in CUT.items() if module.startswith(name)]
        text = slow_text(use, *cut)
        if text is not None:
            slow[module, use.method, use.pattern.pattern] = text
    assert not slow


@pytest.mark.parametrize("expression", [r"\d+$", r"(?:a|a)+b"])
def test_a_pattern_that_takes_longer_is_found(expression: str) -> None:
    assert slow_text(Use(re.compile(expression), "search")) is not None


def test_a_number_is_recognised_by_what_int_reads() -> None:
    """`isdigit` accepts `²`, which int() does not: a message of a kernel ended the console."""
    paths = [path for each in (fabmon, collectors) for path in Path(each.__path__[0]).rglob("*.py")]
    assert paths
    assert [path.name for path in paths if ".isdigit" in path.read_text()] == []


@pytest.mark.parametrize("unit", ["b-", "a.", "a", "[", "[b", "%", "1:"])
def test_an_address_in_a_line_is_found_in_a_time_that_a_long_log_allows(unit: str) -> None:
    """From each boundary of a word the next 255 characters were tried: 0.1 s a line."""
    text = unit * (MAX_PIECE // len(unit))
    times_s = []
    for _ in range(3):
        began_s = time.thread_time()
        assert all(each.search(text) is None for each in _PEERS)
        times_s.append(time.thread_time() - began_s)
    assert min(times_s) < MOST_OF_CUT_S
