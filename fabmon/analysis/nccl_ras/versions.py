"""Which versions of NCCL may be asked for their RAS status.

A query can end the job in versions before 2.29.2 (NVIDIA/nccl issues 1669, 1718 and 1762) and in
2.29.7 (issue 2346). The answer has the version, which is too late: it has to be known before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?![\d.])")
_IN_LIBRARY = re.compile(rb"NCCL version (\d{1,3}\.\d{1,3}\.\d{1,3})(?![\d.])")
_FIRST_WITH_RAS = (2, 24, 0)
_FIRST_SAFE = (2, 29, 2)
_CRASHING = {(2, 29, 7): "NVIDIA/nccl issue 2346"}
"""Later versions in which a query is known to end the job."""


class Version(NamedTuple):
    """A version of NCCL."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def parse_version(text: str) -> Version | None:
    """The version at the start of a text such as `2.29.3+cuda12.9`; None without three numbers."""
    found = _VERSION.match(text.strip())
    return None if found is None else Version(*map(int, found.groups()))


def library_version(name: str, content: Iterable[bytes] = ()) -> Version | None:
    """The version of a library by its file's name (`libnccl.so.2.29.3`), else by the text `NCCL
    version 2.29.3` in blocks of its content; None where neither has it."""
    _, _, suffix = name.rpartition(".so.")
    named = parse_version(suffix)
    if named is not None:
        return named
    tail = b""
    for block in content:
        found = _IN_LIBRARY.search(tail + block)
        if found is not None:
            return parse_version(found[1].decode())
        tail = block[-64:]
    return None


def refusal(version: Version) -> str | None:
    """Why a version must not be asked; None where it may be."""
    if version < _FIRST_WITH_RAS:
        return f"NCCL {version} has no RAS: it came with 2.24"
    if version < _FIRST_SAFE:
        return (
            f"a query can crash a job with NCCL {version} (NVIDIA/nccl issues 1669, 1718, 1762;"
            f" fixed in {Version(*_FIRST_SAFE)})"
        )
    if version in _CRASHING:
        return f"a query can crash a job with NCCL {version} ({_CRASHING[version]})"
    return None
