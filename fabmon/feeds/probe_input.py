"""Everything the console writes to a probe's standard input: archive, settings and commands.

The node runs `python3 -c LOADER`. The console then writes a line with a byte count, the archive, a
line of settings (`payload`), and later commands. The archive is kept in memory on the node: nothing
is written to its disk, and nothing remains when the pipe closes.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import io
import json
import re
import zipfile
from collections.abc import Iterator
from importlib import resources
from importlib.abc import SourceLoader
from importlib.resources.abc import Traversable
from typing import ClassVar, NamedTuple
from zipimport import zipimporter

import msgspec

from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import Answer, Burst, Trace
from fabmon.fabric.wire.unpacking import ENCODINGS
from fabmon.feeds.errors import NoPython, with_check

LOADER = (
    "import sys;sys.path[:]=[p for p in sys.path if p];import os,runpy;"
    "s=open(0,'rb',0,closefd=False);n=int(s.readline());d=bytearray();"
    "[d.extend(s.read(n-len(d))or sys.exit(1))for _ in iter(lambda:len(d)<n,False)];"
    "f=getattr(os,'memfd_create',lambda _:os.open('/dev/shm',4194304|os.O_DIRECTORY|os.O_RDWR))"
    "('fabmon');o=open(f,'wb',closefd=False);o.write(d);o.close();"
    "sys.path.insert(0,'/proc/self/fd/%d'%f);sys.argv=['collectors','--control'];"
    "runpy.run_module('collectors',None,'__main__',True)"
).replace("'", '"')
"""The code that Python runs on the node: one line, for `python3 -c`.

It holds no single quote, backslash, exclamation mark or newline, so that it can stand between
single quotes in any login shell, csh and fish included. It reads nothing from the pipe beyond the
archive. The empty entry of sys.path is removed first, so that a json.py in the home directory does
not become part of the probe. A Python built for a C library without memfd_create uses an unnamed
file in /dev/shm (O_TMPFILE), which is memory too.
"""

_MARK = "fabmon-no-python"

PYTHON_CANDIDATES = (
    "python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8 python3.7 "
    "python3.6 /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python3 "
    "/usr/libexec/platform-python"
)

_VERSION = (
    "import sys;print(sys.version_info>=(3,6),sys.version_info[0],sys.version_info[1],"
    "sys.version_info[2])"
)

_FIND = (
    'f=; for p in "$2" CANDIDATES; do q=$(command -v "$p" 2>/dev/null) || continue; '
    f'v=$("$q" -Sc "{_VERSION}" 2>/dev/null </dev/null); '
    'case "$v" in "True "*) [ "$p" = "$2" ] || export FABMON_PASSED_OVER="$2"; '
    'exec "$q" -E -c "$1";; '
    '*) case "$f " in *" $q "*) ;; *) f="$f; ${v:-False ?} at $q ";; esac;; esac; done; '
    f'echo "{_MARK}$f" >&2; exit 127'
)
"""POSIX sh, with the loader and the hosts file's `python` as arguments: it executes the first
Python that is new enough; if that is not the one of the hosts file, the probe reports it. Without
one it writes to standard error which ones it found."""

_UNQUOTABLE = re.compile(r"['\\!\x00-\x1f\x7f]")


class ProbeSettings(msgspec.Struct, frozen=True):
    """The probe's settings: the first line after the archive.

    `interval_s` is the time between frames; after `lease_s` without a line from the console the
    probe exits. `sources` are names, or `+name` and `-name` to change the default set, None for the
    default set. `root` is the tree to read, for tests. `encodings` are those that this console
    decodes. `arguments` are texts for sources by name; these sources are read too.
    """

    interval_s: float = 1.0
    lease_s: float = 60.0
    sources: tuple[str, ...] | None = None
    root: str = "/"
    encodings: tuple[str, ...] = ()
    arguments: dict[str, str] = {}

    def of(self, host: Host) -> ProbeSettings:
        """The settings for one host: its own sources; packed frames unless the probe is local."""
        return msgspec.structs.replace(
            self,
            sources=host.sources or self.sources,
            encodings=() if host.via == "local" else ENCODINGS,
            arguments={"nccl_inspector": host.nccl_inspector} if host.nccl_inspector else {},
        )

    def line(self) -> bytes:
        """The settings as the probe reads them."""
        return json.dumps(msgspec.to_builtins(self)).encode() + b"\n"


def shell_line(python: str | None = None) -> str:
    """A command line for any login shell that finds a Python and runs the loader with it.

    `python` is tried first. Raises ValueError when it has a character that cannot be put between
    single quotes in every shell; the hosts file rejects such values already.
    """
    if python is not None and _UNQUOTABLE.search(python):
        raise ValueError(f"not the path of an interpreter: {python!r}")
    find = _FIND.replace("CANDIDATES", PYTHON_CANDIDATES)
    return f"exec /bin/sh -c '{find}' fabmon '{LOADER}' '{python or ''}'"


def payload(settings: ProbeSettings) -> bytes:
    """The input of a new probe: the archive's length, the archive, the settings."""
    data = archive()
    return b"%d\n%s%s" % (len(data), data, settings.line())


@functools.cache
def archive() -> bytes:
    """`collectors`, without annotations, and NVIDIA's `pynvml` as a zip file: the same bytes for
    the same code. It runs on Python 3.6 and later.

    The node need not have pynvml; the probe imports it only where the driver's library is.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as zipped:
        _add(zipped, resources.files("collectors"), "collectors")
        _add_file(zipped, "pynvml.py", _source("pynvml"))
    return buffer.getvalue()


def no_python(stderr: str) -> NoPython | None:
    """The error, if a node's standard error says that it has no usable Python."""
    for line in stderr.splitlines():
        _, mark, found = line.partition(_MARK)
        # Other texts follow it where an error message quotes the shell line.
        if mark and found[:1] in ("", ";"):
            return NoPython(_no_python_text(found))
    return None


def quotes_shell_line(stderr: str) -> bool:
    """Whether a program's standard error quotes the shell line: what ran it is no shell."""
    return f"{_MARK}$f" in stderr


def _no_python_text(found: str) -> str:
    seen = []
    for item in found.split(";")[1:]:
        words, _, path = item.strip().partition(" at ")
        version = ".".join(words.split()[1:])
        seen.append(f"{path} that does not run" if version == "?" else f"{version} at {path}")
    what = f"found {', '.join(seen)}" if seen else "found none"
    return with_check(f"no python3 >= 3.6 on the node: {what}", "no python")


def _add(zipped: zipfile.ZipFile, directory: Traversable, prefix: str) -> None:
    for entry in sorted(directory.iterdir(), key=lambda item: item.name):
        name = f"{prefix}/{entry.name}"
        if entry.is_dir():
            _add(zipped, entry, name)
        elif entry.name.endswith(".py"):
            _add_file(zipped, name, without_annotations(entry.read_bytes()))


def _source(module: str) -> bytes:
    """The source of a module of one file, without importing it."""
    spec = importlib.util.find_spec(module)
    loader = None if spec is None else spec.loader
    text = loader.get_source(module) if isinstance(loader, (SourceLoader, zipimporter)) else None
    if text is None:
        raise FileNotFoundError(f"{module} is not installed with its source")
    return text.encode()


def _add_file(zipped: zipfile.ZipFile, name: str, data: bytes) -> None:
    # With a fixed date the archive is the same whenever it is made.
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    zipped.writestr(info, data)


VIAS_WITH_PROBE = ("ssh", "exec", "local")
"""`via` of the nodes whose probe is started by this console and takes its commands."""


class ProbeCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command to the probe of one node. At most one of each class runs on a node at a time.

    `id` is greater than that of any command before and is repeated in the answers. `seconds` is how
    long the command runs at most.
    """

    key: ClassVar[str]
    """Key of the command on the wire."""

    answer: ClassVar[type[Answer]]
    """Type of its answers."""

    unsupported: ClassVar[str]
    """What a node without a probe lacks, to follow `NAME is read through VIA, which`."""

    id: int
    seconds: float

    def line(self) -> bytes:
        """The command as the probe reads it."""
        return json.dumps({self.key: msgspec.to_builtins(self)}).encode() + b"\n"


class BurstCommand(ProbeCommand, frozen=True, kw_only=True):
    """Sample `ports` of one node `hz` times a second for `seconds`.

    The probe accepts at most 16 ports, 100 Hz and 60 s.
    """

    key: ClassVar[str] = "burst"
    answer: ClassVar[type[Answer]] = Burst
    unsupported: ClassVar[str] = "cannot sample faster"

    ports: tuple[str, ...]
    hz: float


class TraceCommand(ProbeCommand, frozen=True, kw_only=True):
    """Trace UDP from `src`, an address of the node, to `dst`:4791 from each port of `sports`.

    `dev` is the interface to send from, None for that of the route; `tos` is the whole byte;
    `probes` is the number of answers wanted of each hop. The probe accepts at most 32 source ports,
    64 hops, 3 answers and 120 s.
    """

    key: ClassVar[str] = "trace"
    answer: ClassVar[type[Answer]] = Trace
    unsupported: ClassVar[str] = "has no fabmon probe that could trace"

    src: str
    dst: str
    sports: tuple[int, ...]
    dev: str | None = None
    tos: int = 0
    max_hops: int = 16
    probes: int = 1


_FIELD = b"object"
_FUTURE = b"from __future__ import annotations"


class _Blank(NamedTuple):
    """Bytes `start` to `stop` of the source, to be replaced; `is_inside` brackets, where a line may
    end without a backslash."""

    start: int
    stop: int
    is_inside: bool = True
    by: bytes = b""


def without_annotations(source: bytes) -> bytes:
    """The source of a module for Python 3.6, which evaluates annotations where `__future__` would
    not. They are blanked in place: lines and columns of a traceback are those of the source. Fields
    of a NamedTuple keep one, since that makes them fields. Raises SyntaxError."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    text = bytearray(source)
    for blank in _blanks(ast.parse(source), source, starts):
        old = bytes(text[blank.start : blank.stop])
        end = b"\n" if blank.is_inside else b"\\\n"
        new = [b""] * (old.count(b"\n") + 1)
        new[0] = blank.by
        # Replaced from the last to the first, so that the places of the others stay.
        text[blank.start : blank.stop] = end.join(new)
    return bytes(text).replace(_FUTURE, b"", 1)


def _blanks(tree: ast.Module, source: bytes, starts: list[int]) -> list[_Blank]:
    """What is to be replaced, the last first."""

    def start(node: ast.expr | ast.stmt | ast.arg) -> int:
        return starts[node.lineno - 1] + node.col_offset

    def stop(node: ast.expr | ast.stmt | ast.arg) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return starts[node.end_lineno - 1] + node.end_col_offset

    found = []
    fields = set(_fields(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            found.append(_Blank(start(node) + len(node.arg.encode()), stop(node.annotation)))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None:
            arrow = source.rindex(b"->", 0, start(node.returns))
            found.append(_Blank(arrow, stop(node.returns), is_inside=False))
        elif isinstance(node, ast.AnnAssign):
            if node in fields:
                place = start(node.annotation)
                found.append(_Blank(place, stop(node.annotation), False, _FIELD))
            elif node.value is not None:
                found.append(_Blank(stop(node.target), stop(node.annotation), is_inside=False))
            else:
                found.append(_Blank(start(node), stop(node), False, b"pass"))
    return sorted(found, reverse=True)


def _fields(tree: ast.Module) -> Iterator[ast.AnnAssign]:
    """The fields of the NamedTuples of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
            if "NamedTuple" in bases:
                yield from (each for each in node.body if isinstance(each, ast.AnnAssign))
