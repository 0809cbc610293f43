"""How the probe gets onto a node: an archive over standard input, run by the node's own Python.

The node runs `python3 -c LOADER`. The console then writes one line with a byte count, the archive,
and one line of settings (`payload`). The archive lives in memory on the node; nothing is written to
its disk, and nothing is left when the pipe closes.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import json
import re
import zipfile
from importlib import resources
from importlib.abc import SourceLoader
from importlib.resources.abc import Traversable
from typing import Protocol
from zipimport import zipimporter

import msgspec

from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import Answer, Burst, Trace
from fabmon.fabric.wire.unpacking import ENCODINGS
from fabmon.feeds.errors import NoPython

LOADER = (
    "import sys;sys.path[:]=[p for p in sys.path if p];import os,runpy;"
    "s=open(0,'rb',0,closefd=False);n=int(s.readline());d=bytearray();"
    "[d.extend(s.read(n-len(d))or sys.exit(1))for _ in iter(lambda:len(d)<n,False)];"
    "f=getattr(os,'memfd_create',lambda _:os.open('/dev/shm',4194304|os.O_DIRECTORY|os.O_RDWR))"
    "('fabmon');o=open(f,'wb',closefd=False);o.write(d);o.close();"
    "sys.path.insert(0,'/proc/self/fd/%d'%f);sys.argv=['collectors','--control'];"
    "runpy.run_module('collectors',None,'__main__',True)"
).replace("'", '"')
"""What Python runs on the node. One line, for `python3 -c`.

It holds no single quote, backslash, exclamation mark or newline, so that it can stand between
single quotes whatever shell the account has, csh and fish included. It takes nothing from the pipe
beyond the archive. The empty entry of sys.path goes first: a json.py in somebody's home directory
must not become part of the probe. A Python built for a C library without memfd_create gets an
unnamed file in /dev/shm (O_TMPFILE), which is memory too.
"""

_MARK = "fabmon-no-python"

_CANDIDATES = (
    "python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 "
    "/usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python3 /usr/libexec/platform-python"
)

_VERSION = (
    "import sys;print(sys.version_info>=(3,9),sys.version_info[0],sys.version_info[1],"
    "sys.version_info[2])"
)

_FIND = (
    'f=; for p in "$2" CANDIDATES; do q=$(command -v "$p" 2>/dev/null) || continue; '
    f'v=$("$q" -Sc "{_VERSION}" 2>/dev/null </dev/null); '
    'case "$v" in "True "*) exec "$q" -E -c "$1";; '
    '*) case "$f " in *" $q "*) ;; *) f="$f; ${v:-False ?} at $q ";; esac;; esac; done; '
    f'echo "{_MARK}$f" >&2; exit 127'
)
"""POSIX sh, with the loader and the hosts file's `python` as arguments: the first Python that is
new enough replaces the shell. Without one it says on standard error what it found."""

_NOT_PLAIN = re.compile(r"['\\!\x00-\x1f\x7f]")


class ProbeSettings(msgspec.Struct, frozen=True):
    """What the probe is asked for: its first line after the archive.

    `interval_s` between frames; `lease_s` without a line from the console before it ends by itself;
    `sources` by name, or `+name` and `-name` beside the usual ones, None for those; `root` of the
    tree to read, for tests; `encodings` that this console reads.
    """

    interval_s: float = 1.0
    lease_s: float = 60.0
    sources: tuple[str, ...] | None = None
    root: str = "/"
    encodings: tuple[str, ...] = ()

    def of(self, host: Host) -> ProbeSettings:
        """The same for one host: its own sources, and frames packed unless they stay here."""
        return msgspec.structs.replace(
            self,
            sources=host.sources or self.sources,
            encodings=() if host.via == "local" else ENCODINGS,
        )

    def line(self) -> bytes:
        """The settings as the probe reads them."""
        return json.dumps(msgspec.to_builtins(self)).encode() + b"\n"


def shell_line(python: str | None = None) -> str:
    """A command line for any login shell that finds a Python and runs the loader with it.

    `python` is tried first. Raises ValueError when it holds a character that no shell's single
    quotes keep as it is; a hosts file with such a value has been refused before.
    """
    if python is not None and _NOT_PLAIN.search(python):
        raise ValueError(f"not the path of an interpreter: {python!r}")
    find = _FIND.replace("CANDIDATES", _CANDIDATES)
    return f"exec /bin/sh -c '{find}' fabmon '{LOADER}' '{python or ''}'"


def payload(settings: ProbeSettings) -> bytes:
    """All that a new probe is sent: the archive's length, the archive, the settings."""
    data = archive()
    return b"%d\n%s%s" % (len(data), data, settings.line())


@functools.cache
def archive() -> bytes:
    """`collectors` and NVIDIA's `pynvml` as a zip file: the same bytes for the same code.

    The node need not have pynvml; the probe imports it only where the driver's library is.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as zipped:
        _add(zipped, resources.files("collectors"), "collectors")
        _add_file(zipped, "pynvml.py", _source("pynvml"))
    return buffer.getvalue()


def no_python(errors: str) -> NoPython | None:
    """The NoPython that a node's standard error tells of, if it does."""
    for line in errors.splitlines():
        _, mark, found = line.partition(_MARK)
        if mark:
            return NoPython(_explain(found))
    return None


def _explain(found: str) -> str:
    seen = []
    for item in found.split(";")[1:]:
        words, _, path = item.strip().partition(" at ")
        version = ".".join(words.split()[1:])
        seen.append(f"{path} that does not run" if version == "?" else f"{version} at {path}")
    what = f"found {', '.join(seen)}" if seen else "found none"
    return f"no python3 >= 3.9 on the node: {what}; set python= in the hosts file"


def _add(zipped: zipfile.ZipFile, directory: Traversable, prefix: str) -> None:
    for entry in sorted(directory.iterdir(), key=lambda item: item.name):
        name = f"{prefix}/{entry.name}"
        if entry.is_dir():
            _add(zipped, entry, name)
        elif entry.name.endswith(".py"):
            _add_file(zipped, name, entry.read_bytes())


def _source(module: str) -> bytes:
    """The text of a module of one file, which is not imported for it."""
    spec = importlib.util.find_spec(module)
    loader = None if spec is None else spec.loader
    text = loader.get_source(module) if isinstance(loader, (SourceLoader, zipimporter)) else None
    if text is None:
        raise FileNotFoundError(f"{module} is not installed with its source")
    return text.encode()


def _add_file(zipped: zipfile.ZipFile, name: str, data: bytes) -> None:
    # Without a date of its own an entry carries the time of the packing.
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    zipped.writestr(info, data)


# What the console asks a probe for beside the frames: to look faster, to follow flows.


VIAS_WITH_PROBE = ("ssh", "exec", "local")
"""`via` of the nodes whose probe belongs to this console and listens to it."""


class ProbeCommand(Protocol):
    """A request to one node; `id` comes back with the answer, within `seconds` or a little more."""

    @property
    def id(self) -> int:
        """Greater than that of any request before."""

    @property
    def seconds(self) -> float:
        """How long it takes at most."""

    @property
    def answer(self) -> type[Answer]:
        """What its answers are. One request of a kind runs at a time on a node."""

    @property
    def cannot(self) -> str:
        """What a node without a probe of ours cannot do, after its name and `which`."""

    def line(self) -> bytes:
        """The request as the probe reads it."""


class BurstCommand(msgspec.Struct, frozen=True):
    """`ports` of one node, `hz` samples a second, for `seconds`.

    The probe takes at most 16 ports, 100 Hz and 60 s.
    """

    id: int
    ports: tuple[str, ...]
    seconds: float
    hz: float

    @property
    def answer(self) -> type[Answer]:
        """Samples."""
        return Burst

    @property
    def cannot(self) -> str:
        """Without a probe."""
        return "cannot sample faster"

    def line(self) -> bytes:
        """The request as the probe reads it."""
        return _line("burst", self)


class TraceCommand(msgspec.Struct, frozen=True, kw_only=True):
    """The way of UDP from `src`, an address of the node, to `dst`:4791, for each of `sports`.

    `dev` is the interface to leave by, None for the route's; `tos` is the whole byte; `probes` are
    the answers wanted of each hop. The probe takes at most 32 source ports, 64 hops, 3 answers and
    120 s.
    """

    id: int
    src: str
    dst: str
    sports: tuple[int, ...]
    dev: str | None = None
    tos: int = 0
    max_hops: int = 16
    probes: int = 1
    seconds: float = 60.0

    @property
    def answer(self) -> type[Answer]:
        """Paths."""
        return Trace

    @property
    def cannot(self) -> str:
        """Without a probe."""
        return "has no probe of this console that could trace"

    def line(self) -> bytes:
        """The request as the probe reads it."""
        return _line("trace", self)


def _line(key: str, ask: msgspec.Struct) -> bytes:
    return json.dumps({key: msgspec.to_builtins(ask)}).encode() + b"\n"
