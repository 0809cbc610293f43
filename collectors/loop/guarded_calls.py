"""Calls of a source's methods that never raise, whatever the source does."""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence

from collectors import clock
from collectors.coverage import Coverage
from collectors.source import Failed, Faults, Logged, NoNews, Source, SourceError, from_oserror
from collectors.wire import Object


class DiscoveryResult(NamedTuple):
    """Result of a discovery: `objects`, or the `error` that it met; `coverage` and `limits` in both
    cases.

    `signature` was taken before the discovery.
    """

    objects: List[Object]
    signature: object
    error: Optional[SourceError]
    coverage: List[Coverage]
    limits: List[str]


class Reading(NamedTuple):
    """Result of a read.

    `values` is None when nothing could be read, and then `error` says why; without an error, there
    was nothing new to read. `mono_ns` is the clock at the start of the read, or the clock at which
    the source says that its values were true. `has_changed` is set when the signature was compared
    and the hardware is no longer what it described. `logged` are events since the last read.
    """

    mono_ns: int
    duration_us: int
    values: Optional[List[Optional[int]]]
    faults: Faults
    error: Optional[SourceError]
    has_changed: bool
    logged: Sequence[Logged] = ()


def discover(source: Source) -> DiscoveryResult:
    """Close the source and let it find its objects again."""
    before = signature(source)
    try:
        source.close()
        found = source.discover()
        return DiscoveryResult(found, before, None, source.coverage, source.limits)
    except Exception as error:
        problem = _as_source_error(error)
        return DiscoveryResult([], before, problem, source.coverage, source.limits)


def read(source: Source, *, reads: bool, looks: bool, known: object) -> Reading:
    """Read the source's values if it `reads`; compare its signature with `known` if it `looks`."""
    faults: Faults = {}
    values: Optional[List[Optional[int]]] = None
    logged: Sequence[Logged] = ()
    failure: Optional[SourceError] = None
    start_ns = clock.monotonic_ns()
    try:
        values = source.read(faults) if reads else None
        logged = source.logged() if reads else ()
    except NoNews:
        pass
    except Exception as error:
        failure = _as_source_error(error)
    end_ns = clock.monotonic_ns()
    at_ns = start_ns if source.values_ns is None else min(source.values_ns, end_ns)
    has_changed = looks and signature(source) != known
    return Reading(at_ns, (end_ns - start_ns) // 1000, values, faults, failure, has_changed, logged)


def signature(source: Source) -> object:
    """The source's signature, which changes with its hardware; None when it cannot be had."""
    try:
        return source.signature()
    except Exception:
        return None


def _as_source_error(error: Exception) -> SourceError:
    if isinstance(error, SourceError):
        return error
    if isinstance(error, OSError):
        return from_oserror(error)
    return Failed(f"{type(error).__name__}: {error}")
