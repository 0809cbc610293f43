"""Which version of NCCL a job uses: as given, from its log, or from libraries that are mapped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.nccl_ras.versions import Version, library_version, parse_version, refusal
from fabmon.session.errors import UsageError

THIS_MACHINE = ("localhost", "127.0.0.1", "::1")

_MAPPED = re.compile(rb"^[^\n/]* (/[^\n]*/libnccl\.so[^\n ]*)", re.MULTILINE)
_BLOCK = 1 << 20
_MOST_BYTES = 1 << 30
_MOST_MAPS = 16 << 20
_ADVICE = (
    "give its version with --nccl-version, or a log of the job with --log (its line `NCCL version`"
    " or NCCL_DEBUG=VERSION has it)"
)


def mapped_versions(proc: Path = Path("/proc")) -> dict[str, Version | None]:
    """Path of a mapped libnccl -> its version, None where it is not known; only of processes that
    this user may read. A library in a container is read through the process' own root."""
    found: dict[str, Version | None] = {}
    for process in proc.glob("[0-9]*"):
        try:
            with (process / "maps").open("rb") as stream:
                maps = stream.read(_MOST_MAPS)
        except OSError:
            continue
        for path in {match[1].decode(errors="replace") for match in _MAPPED.finditer(maps)}:
            if found.get(path) is None:
                inside = process / "root" / path.lstrip("/")
                found[path] = library_version(Path(path).name, _blocks(inside))
    return found


def _blocks(path: Path) -> Iterator[bytes]:
    """The content of a file, as far as it can be read."""
    try:
        with path.open("rb") as stream:
            size = 0
            while size < _MOST_BYTES and (block := stream.read(_BLOCK)):
                size += len(block)
                yield block
    except OSError:
        return


def allowed_version(
    given_text: str | None, log: JobLog | None, mapped: Mapping[str, Version | None]
) -> Version:
    """The version of the job's NCCL: as given, from its log, or from libraries that processes of
    the node have mapped (path -> version). One that has no version may be the job's: without
    another source it makes the version unknown.

    Raises UsageError with the reason where it is unknown, or where a query can crash the job.
    """
    known: dict[Version, str] = {}
    if given_text is not None:
        given = parse_version(given_text)
        if given is None:
            raise UsageError(f"--nccl-version {given_text}: write it as in 2.29.3")
        known[given] = "--nccl-version"
    if log is not None:
        logged = [(text, parse_version(text)) for text in log.versions]
        known |= {each: f"the log has {text}" for text, each in logged if each is not None}
    is_stated = bool(known)
    known |= {each: path for path, each in mapped.items() if each is not None}
    unread = next((path for path, each in mapped.items() if each is None), None)
    if not known or (unread and not is_stated):
        why = f"{unread} does not say it" if unread else "nothing says which one the job uses"
        raise UsageError(
            f"RAS was not asked: a query can crash a job with some versions of NCCL, and {why}:"
            f" {_ADVICE}"
        )
    for version, origin in known.items():
        why_not = refusal(version)
        if why_not is not None:
            raise UsageError(
                f"RAS was not asked: {why_not}; known from {origin}. Read the job's logs with"
                " fabmon explain, or use a newer NCCL"
            )
    if len(known) > 1 and given_text is not None:
        texts = ", ".join(f"{version} ({origin})" for version, origin in known.items())
        raise UsageError(f"RAS was not asked: the version is not certain: {texts}")
    return min(known)
