"""The questions that a source is asked, answered without raising whatever the source does."""

from __future__ import annotations

import time
from typing import List, NamedTuple, Optional

from collectors.source import Failed, Faults, NoNews, Source, SourceError, from_oserror
from collectors.wire import Object


class DiscoveryResult(NamedTuple):
    """What a discovery brought: `objects`, or the `error` that it met. `signature` is of before."""

    objects: List[Object]
    signature: object
    error: Optional[SourceError]


class Reading(NamedTuple):
    """What a read brought. `values` is None when nothing could be read, and then `error` says why;
    without an error, there was nothing new to read.

    `mono_ns` is the clock at the start of the read, or that at which the source says that its
    values were true. `has_changed` says that the hardware is not what `signature` was of, when
    that was asked.
    """

    mono_ns: int
    duration_us: int
    values: Optional[List[Optional[int]]]
    faults: Faults
    error: Optional[SourceError]
    has_changed: bool


def discover(source: Source) -> DiscoveryResult:
    """Have the source look for its objects, from scratch."""
    looked = signature(source)
    try:
        source.close()
        return DiscoveryResult(source.discover(), looked, None)
    except Exception as error:
        return DiscoveryResult([], looked, _as_source_error(error))


def read(source: Source) -> Reading:
    """Have the source read its values."""
    faults: Faults = {}
    values: Optional[List[Optional[int]]] = None
    failure: Optional[SourceError] = None
    start_ns = time.monotonic_ns()
    try:
        values = source.read(faults)
    except NoNews:
        pass
    except Exception as error:
        failure = _as_source_error(error)
    end_ns = time.monotonic_ns()
    duration_us = (end_ns - start_ns) // 1000
    at_ns = start_ns if source.values_ns is None else min(source.values_ns, end_ns)
    return Reading(at_ns, duration_us, values, faults, failure, False)


def look(source: Source, known: object) -> Reading:
    """See whether the hardware is still what the signature `known` was of; read nothing."""
    now_ns = time.monotonic_ns()
    return Reading(now_ns, 0, None, {}, None, signature(source) != known)


def read_and_look(source: Source, known: object) -> Reading:
    """`read`, then `look`."""
    return read(source)._replace(has_changed=signature(source) != known)


def signature(source: Source) -> object:
    """What tells the source's hardware from another; None when it cannot be told."""
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
