"""The hosts file: which nodes to watch, and how to reach them.

    NODESET [key=value ...]     # comment
    gpu[001-128]                group=rack7 user=monitor
    leaf[1-4]                   role=switch address=10.0.0.[1-4] speed.up*=400G
    root@192.0.2.4:2222         # the user, and the port of SSH or of another `via`
    node01 slots=8              # MPI and DeepSpeed hostfiles are hosts files
    node02:8                    # so are MPI machine files

Keys: address user port via command python role group speed speed.PATTERN. See
config/hosts.example.txt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fabmon.fabric.hosts import host_line, nodesets
from fabmon.fabric.hosts.host_line import Bad, LineProblem, Speed, Word
from fabmon.fabric.input_files import problem_lines, read_input
from fabmon.fabric.model import SWITCH, Host
from fabmon.fabric.names import is_loopback
from fabmon.fabric.wire.messages import clean
from fabmon.fabric.wording import file_error

_MAX_BYTES = 16 * 1024 * 1024
_MAX_LINE = 128 * 1024
"""Characters of a line: 10,000 names. ClusterShell takes quadratic time, here up to 7 s."""

_WITH_PORT = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<place>[^:]+)):(?P<port>\d{1,5})")

_SWITCHES = {
    "eapi": "a file that holds user:password",
    "snmp": "a file that holds the community, or a v3 user",
}
"""`via` of switches, and the content of their secret files."""


class HostsFileError(Exception):
    """The problems of a hosts file, in order; as text `file:line:column: what: fix`, a line each.

    A problem of the whole file, at line 0, has no line and column: `file: what: fix`.
    """

    def __init__(self, filename: str, problems: Sequence[LineProblem]) -> None:
        self.filename = filename
        self.problems = tuple(sorted(problems))
        super().__init__(problem_lines(filename, [*map(self._render, self.problems)]))

    def _render(self, problem: LineProblem) -> str:
        where = f":{problem.line}:{problem.column}" if problem.line else ""
        fix = f": {clean(problem.fix)}" if problem.fix else ""
        return f"{self.filename}{where}: {clean(problem.text)}{fix}"


def read(path: Path) -> list[Host]:
    """The hosts of a file. Raises HostsFileError, also for a file that cannot be read."""
    filename = clean(str(path))
    try:
        data = read_input(path, _MAX_BYTES, names_commands=_names_commands)
    except OSError as error:
        problem = LineProblem(0, 0, file_error(error), "")
        raise HostsFileError(filename, [problem]) from None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        problem = LineProblem(0, 0, "the file is UTF-16", "save it as UTF-8")
        raise HostsFileError(filename, [problem])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        problem = LineProblem(line, column, "a byte that is not UTF-8", "save the file as UTF-8")
        raise HostsFileError(filename, [problem]) from None
    return parse(text, filename)


def _names_commands(data: bytes) -> bool:
    """Whether a hosts file may have commands, which run as the user, or files of secrets, which are
    sent to the address beside them. Quotes may be anywhere in a key."""
    plain = data.translate(None, b"\"'")
    return b"command=" in plain or b"secret=" in plain


def parse(text: str, filename: str) -> list[Host]:
    """The hosts of a file's text, in its order. Raises HostsFileError with all its problems."""
    # Not splitlines(): editors do not count a form feed or a NEL as a line end.
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return _parse(lines, filename)


def from_nodesets(entries: Iterable[str]) -> list[Host]:
    """The hosts of `--host ENTRY` options; each is an entry of a hosts file.

    Raises HostsFileError; its line numbers count the entries.
    """
    return _parse(list(entries), "--host", may_be_machine_file=False)


def _parse(lines: Sequence[str], filename: str, *, may_be_machine_file: bool = True) -> list[Host]:
    hosts: list[Host] = []
    problems: list[LineProblem] = []
    first_seen: dict[str, int] = {}
    count = number = 0
    for number, line in enumerate(lines, 1):
        if count > nodesets.MAX_NODES:
            break  # Each line may have so many: a small file would take all memory.
        for host, column in _entry(line, number, problems, may_be_machine_file):
            count += 1
            if host.name in first_seen:
                what = f"{host.name} is listed on line {first_seen[host.name]} already"
                problems.append(LineProblem(number, column, what, "remove one of them"))
            else:
                first_seen[host.name] = number
                hosts.append(host)
    if not hosts and not problems:
        problems = [
            LineProblem(0, 0, "no nodes", "write one node set per line, as in gpu[001-128]")
        ]
    if count > nodesets.MAX_NODES:
        what = f"more than {nodesets.MAX_NODES} nodes"
        problems.append(LineProblem(number, 1, what, "watch a part of them"))
    if problems:
        raise HostsFileError(filename, problems)
    return hosts


def _entry(
    line: str, number: int, problems: list[LineProblem], may_be_machine_file: bool
) -> list[tuple[Host, int]]:
    """The hosts of one line, each with the column of its node set; problems are added."""

    def note(bad: Bad) -> None:
        problems.append(LineProblem(number, bad.column, bad.text, bad.fix))

    try:
        if len(line) > _MAX_LINE:
            raise Bad(1, f"a line of more than {_MAX_LINE} characters", "write several lines")
        found = host_line.words(line)
    except Bad as bad:
        note(bad)
        return []
    if not found:
        return []
    before = len(problems)
    names: list[str] = []
    try:
        is_plain = all(word.text.startswith(host_line.IGNORED) for word in found[1:])
        place = host_line.place(found[0], may_be_slots=may_be_machine_file and is_plain)
        found[:1] = [place.nodes, *place.keys]
        names = nodesets.expand(place.nodes)
    except Bad as bad:
        note(bad)
    values, address = _values(found[1:], note)
    places = [""] * len(names)
    if address is not None and names:
        try:
            places = nodesets.addresses(address, names)
        except Bad as bad:
            note(bad)
    if len(problems) > before:
        return []
    column = found[0].column
    hosts = [
        (Host(name=name, address=place or name, **values), column)
        for name, place in zip(names, places, strict=True)
    ]
    if any(sends_secret_in_clear_text(host) for host, _ in hosts):
        note(
            Bad(
                column,
                "the secret would be sent over the network in clear text",
                "add tls=yes, a file with certificates, or tls=no on a trusted network",
            )
        )
        return []
    return hosts


def sends_secret_in_clear_text(host: Host) -> bool:
    """Whether a secret would be sent over the network without TLS and without `tls=no`."""
    is_open = host.via == "exporters" and host.secret is not None and host.tls is None
    return is_open and not is_loopback(host.address or host.name)


def _values(found: Iterable[Word], note: Any) -> tuple[dict[str, Any], Word | None]:
    """The values of a line as in `Host`, and the word with its addresses."""
    values: dict[str, Any] = {}
    columns: dict[str, int] = {}
    speeds: list[Speed] = []
    address: Word | None = None
    for word in found:
        try:
            key, value = host_line.pair(word)
            if key in columns:
                raise Bad(word.column, f"{key}= is given twice", "remove one of them")
            columns[key] = word.column
            if key in host_line.IGNORED:
                continue
            if key == "address":
                address = value
                continue
            item = host_line.value_of(key, value)
            if isinstance(item, Speed):
                speeds.append(item)
            else:
                values[key] = item
        except Bad as bad:
            note(bad)
    _check_together(values, columns, note)
    if address is not None:
        _check_address(address, values, note)
    # The most specific pattern last: the one with the most characters that are not wildcards.
    speeds.sort(key=lambda speed: len(speed.pattern) - sum(map(speed.pattern.count, "*?[]")))
    values["speeds"] = tuple((speed.pattern, speed.bps) for speed in speeds)
    return values, address


def _check_address(address: Word, values: dict[str, Any], note: Any) -> None:
    """Report a port in the address, a common mistake. Other errors are found with the nodes."""
    match = _WITH_PORT.fullmatch(address.text)
    if match is None:
        return
    key = "scrape" if values.get("via") == "exporters" else "port"
    place = match["v6"] or match["place"]
    what = f"address={address.text} contains a port"
    note(Bad(address.column, what, f"write address={place} {key}={match['port']}"))


def _check_together(values: dict[str, Any], columns: dict[str, int], note: Any) -> None:
    if "command" in columns and "via" not in columns:
        values["via"] = "exec"
    via = values.get("via", "ssh")
    if "command" in columns and via != "exec":
        fix = "write via=exec, or leave command= out"
        note(Bad(columns["command"], f"command= has no meaning with via={via}", fix))
    if "via" in columns and via == "exec" and "command" not in columns:
        fix = "add command=openssh, kubectl, srun or a command of your own with {node}"
        note(Bad(columns["via"], "via=exec needs a command", fix))
    if via in (*_SWITCHES, "gnmi", "sflow"):
        values.setdefault("role", SWITCH)
    if via in _SWITCHES and "secret" not in columns:
        fix = f"add secret=FILE, {_SWITCHES[via]}"
        note(Bad(columns["via"], f"via={via} needs a secret", fix))
