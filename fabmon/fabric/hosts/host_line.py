"""One line of a hosts file: words with their columns, and the values of its keys."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import NamedTuple

from collectors.registry import SOURCES
from fabmon.fabric.hosts import exec_command
from fabmon.fabric.model import HOST, SWITCH, VIAS
from fabmon.fabric.wire.messages import clean

KEYS = (
    "address",
    "user",
    "port",
    "via",
    "command",
    "python",
    "role",
    "group",
    "speed",
    "sources",
    "scrape",
    "secret",
    "tls",
    "nccl_inspector",
)
IGNORED = ("slots", "max_slots", "max-slots")
"""Keys of MPI and DeepSpeed hostfiles that are ignored."""

_ROLES = (HOST, SWITCH)
_SPEED = re.compile(r"(\d+(?:\.\d+)?)([kMGT]?)(?:bit/s|b/s|bps|bit)?")
_FACTORS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\+-]{0,63}\$?")
_PYTHON = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+@,:= -]*")
_PATTERN = re.compile(r"[A-Za-z0-9_.:@*?\[\]/-]+")
_SOURCE = re.compile(r"[+-]?[a-z][a-z0-9_]*")
_SCRAPE = re.compile(r"(?:(?P<kind>[a-z_][a-z0-9_]*):)?(?P<port>[0-9]{1,5})(?:/[!-~]*)?")
_UFM_TLS = "https"
"""In place of KIND where `scrape` is the telemetry of a UFM."""
_PLACE = re.compile(
    r"(?:(?P<user>[^@]+)@)?"
    r"(?:\[(?P<v6>[0-9a-fA-F.]*:[0-9a-fA-F:.]*)\](?::(?P<v6_port>\d{1,5}))?"
    r"|(?P<nodes>[^:]+?):(?P<port>\d{1,5})|(?P<bare>.+))"
)
_PORT_WITHIN = re.compile(r"(?:^|,)(?:[^:,\[]|\[[^\]]*\])+(:\d{1,5})(?=,)")
"""A node with a port, before the last of a list."""

_MOST_SLOTS = 512
"""Numbers after a node's name up to this one may be the slots of an MPI machine file: no node runs
more processes, and of services without a `via=` only SSH listens below."""

_SSH_PORT = 22
_SLOWEST_BPS = 1e6
"""A lower line rate is taken for a number without its unit."""


EXPORTERS = (
    "amd_gpu_exporter", "amd_nic_exporter", "dcgm_exporter", "fabmon", "gaudi_exporter",
    "guilbaults_exporter", "infiniband_exporter", "moneo", "node_exporter", "omnistat",
)  # fmt: skip
"""Kinds of exporters in `scrape`; a test compares them with the tables."""


class Word(NamedTuple):
    """A word and its column, from 1."""

    text: str
    column: int


class LineProblem(NamedTuple):
    """An error with its place and what to write instead. Lines and columns count from 1; line 0 is
    the whole file."""

    line: int
    column: int
    text: str
    fix: str


class Bad(Exception):
    """An invalid word."""

    def __init__(self, column: int, text: str, fix: str) -> None:
        super().__init__(text)
        self.column = column
        self.text = text
        self.fix = fix


class Speed(NamedTuple):
    """A line rate in bits/s for the ports that match a pattern."""

    pattern: str
    bps: float


class Place(NamedTuple):
    """The first word of a line: a node set, and what it has beside it as the words of keys."""

    nodes: Word
    keys: list[Word]


def place(word: Word, *, may_be_slots: bool) -> Place:
    """The parts of `[USER@]NODESET[:PORT]` or `[USER@][IPV6][:PORT]`.

    With `may_be_slots`, a small number after a node set is that of an MPI machine file, ignored;
    these name no users. Raises Bad for a port within a list of nodes.
    """
    within = _PORT_WITHIN.search(word.text)
    if within is not None:
        raise Bad(
            word.column + within.start(1),
            "a list of nodes has one port, at its end",
            "write nodes with other ports apart: each on its line, or with its --host",
        )
    match = _PLACE.fullmatch(word.text)
    if match is None:
        return Place(word, [])
    group = "v6" if match["v6"] else "nodes" if match["nodes"] else "bare"
    nodes = match[group]
    if nodes.startswith("::"):
        nodes = f"0{nodes}"  # the same address, which may be a name
    port = match["v6_port"] or match["port"]
    may_be_slots &= group == "nodes" and not match["user"]
    if may_be_slots and int(port) <= _MOST_SLOTS and int(port) != _SSH_PORT:
        port = None
    keys = [
        # As if written in place: a problem is reported at the column of the value.
        Word(f"{key}={value}", word.column + match.start(at) - len(key) - 1)
        for key, value, at in (
            ("user", match["user"], "user"),
            ("port", port, "v6_port" if match["v6_port"] else "port"),
        )
        if value
    ]
    return Place(Word(nodes, word.column + match.start(group)), keys)


def words(line: str) -> list[Word]:
    """The words of a line up to its comment; quotes protect spaces and are removed.

    A quote begins at the start of a word or after its `=`. Raises Bad for one that is not closed.
    """
    found: list[Word] = []
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        if line[at] == "#":
            break
        start, text = at, ""
        while at < len(line) and not line[at].isspace():
            if line[at] in "'\"" and (at == start or line[at - 1] == "="):
                end = line.find(line[at], at + 1)
                if end < 0:
                    raise Bad(at + 1, "a quote is not closed", f"add a {line[at]}")
                text += line[at + 1 : end]
                at = end + 1
            else:
                text += line[at]
                at += 1
        found.append(Word(text, start + 1))
    return found


def pair(word: Word) -> tuple[str, Word]:
    """`key=value` as a key and a value with its own column. Raises Bad."""
    key, equals, value = word.text.partition("=")
    if not equals:
        raise Bad(
            word.column,
            f"{_show(word.text)} is not key=value",
            "write a node set first, then key=value pairs; a node set holds no space",
        )
    base = key.partition(".")[0] if key.startswith("speed.") else key
    if base not in KEYS and base not in IGNORED:
        close = difflib.get_close_matches(base, KEYS, 1, 0.5)
        fix = f"did you mean {close[0]}=?" if close else f"keys are {', '.join(KEYS)}"
        raise Bad(word.column, f"unknown key {_show(key)}", fix)
    if not value and base not in IGNORED:
        raise Bad(word.column, f"{key}= has no value", f"write one, or leave {key}= out")
    return key, Word(value, word.column + len(key) + 1)


def value_of(key: str, word: Word) -> object:
    """The value of a key as in `Host`; not for `address`, which depends on the nodes. Raises
    Bad."""
    if key.startswith("speed"):
        return _speed(key, word)
    return _READERS[key](word)


def _speed(key: str, word: Word) -> Speed:
    pattern = key.partition(".")[2] if key != "speed" else "*"
    match = _SPEED.fullmatch(word.text)
    if match is None or not float(match[1]):
        raise Bad(
            word.column,
            f"{_show(word.text)} is not a line rate",
            "write bits/s in one direction, as in 100M, 2.5G or 400G",
        )
    if not _PATTERN.fullmatch(pattern):
        raise Bad(word.column, f"{_show(key)} names no ports", "write speed.up*=400G")
    bps = float(match[1]) * _FACTORS[match[2]]
    if bps < _SLOWEST_BPS:
        what = f"{_show(word.text)} is {bps:.0f} bits/s, which is not a line rate"
        raise Bad(word.column, what, f"did you mean {match[1]}G?")
    return Speed(pattern, bps)


def _choice(what: str, *choices: str) -> Callable[[Word], str]:
    def read(word: Word) -> str:
        if word.text in choices:
            return word.text
        close = difflib.get_close_matches(word.text, choices, 1, 0.5)
        fix = f"did you mean {what}={close[0]}?" if close else f"use {' or '.join(choices)}"
        raise Bad(word.column, f"{what} cannot be {_show(word.text)}", fix)

    return read


def _matching(what: str, pattern: re.Pattern[str], fix: str) -> Callable[[Word], str]:
    def read(word: Word) -> str:
        if pattern.fullmatch(word.text):
            return word.text
        raise Bad(word.column, f"{_show(word.text)} is not {what}", fix)

    return read


def _port(word: Word) -> int:
    if word.text.isascii() and word.text.isdecimal() and 0 < int(word.text[:6]) < 65536:
        return int(word.text)
    raise Bad(word.column, f"{_show(word.text)} is not a TCP port", "write 1 to 65535, as in 22")


def _command(word: Word) -> str:
    try:
        exec_command.split(word.text)
    except exec_command.CommandError as error:
        raise Bad(word.column, error.what, error.fix) from None
    return word.text


def _group(word: Word) -> str:
    if word.text.isprintable() and len(word.text) <= 64:
        return word.text
    raise Bad(word.column, "this is not a group name", "use at most 64 printable characters")


def _sources(word: Word) -> tuple[str, ...]:
    found = tuple(word.text.split(","))
    bad = [part for part in found if not _SOURCE.fullmatch(part)]
    if bad:
        fix = "write +name, -name or name, with commas between"
        raise Bad(word.column, f"{_show(bad[0])} is not a source", fix)
    for place, part in enumerate(found):
        name = part.lstrip("+-")
        if name not in SOURCES:
            close = difflib.get_close_matches(name, SOURCES, 1, 0.5)
            fix = f"did you mean {close[0]}?" if close else f"sources are {', '.join(SOURCES)}"
            raise Bad(_column(word, found, place), f"there is no source {_show(name)}", fix)
    return found


def _scrape(word: Word) -> tuple[str, ...]:
    found = tuple(word.text.split(","))
    for place, part in enumerate(found):
        match = _SCRAPE.fullmatch(part)
        column = _column(word, found, place)
        if match is None or not 0 < int(match["port"]) < 65536:
            fix = "write [KIND:]PORT[/PATH], with commas between, as in 9100 or 9400/metrics"
            raise Bad(column, f"{_show(part)} is not a scrape target", fix)
        if match["kind"] not in (None, _UFM_TLS, *EXPORTERS):
            close = difflib.get_close_matches(match["kind"], EXPORTERS, 1, 0.5)
            fix = f"did you mean {close[0]}?" if close else f"exporters are {', '.join(EXPORTERS)}"
            raise Bad(column, f"unknown exporter {_show(match['kind'])}", fix)
    return found


def _column(word: Word, parts: tuple[str, ...], place: int) -> int:
    """The column of a part of a list."""
    return word.column + sum(len(part) + 1 for part in parts[:place])


def _file(word: Word) -> str:
    if word.text.isprintable() and len(word.text) <= 4096:
        return word.text
    raise Bad(word.column, "this is not a file name", "write the whole path")


def _directory(word: Word) -> str:
    if word.text.startswith("/") and word.text.isprintable() and len(word.text) <= 4096:
        return word.text
    raise Bad(word.column, "this is not a directory of the nodes", "write the whole path, /DIR")


def _show(text: str) -> str:
    return repr(clean(text[:60]))


_READERS: dict[str, Callable[[Word], object]] = {
    "user": _matching("a user name", _USER, "letters, digits and _ . - @ only"),
    "port": _port,
    "via": _choice("via", *VIAS),
    "command": _command,
    "python": _matching("a path", _PYTHON, "write the interpreter's whole path, without quotes"),
    "role": _choice("role", *_ROLES),
    "group": _group,
    "sources": _sources,
    "scrape": _scrape,
    "secret": _file,
    "tls": _file,
    "nccl_inspector": _directory,
}
