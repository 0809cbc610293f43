"""What a counter source is: the contract between one small reader and the probe's loop.

Errors a source may raise, one tree:

    SourceError
    |-- NoData        nothing of its kind on this machine (no such class directory): normal, silent
    |-- Unsupported   the hardware is there, this kernel or driver does not offer the counters
    |-- Denied        the kernel refused; the message names the group or capability that would help
    |-- Saturated     of one value: the counter sticks at its maximum, so its value is unknown
    `-- Failed        anything else, with what the kernel said
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from typing import Dict, List, Optional

from collectors.hostfs import HostFS, readable_by
from collectors.wire import Object


class SourceError(Exception):
    """A source, or one value of it, cannot be read; `reason` is the word that goes on the wire."""

    reason = "failed"


class NoData(SourceError):
    """Nothing of this source's kind exists on this machine."""

    reason = "absent"


class Unsupported(SourceError):
    """The hardware is there; the kernel or the driver does not offer this counter."""

    reason = "unsupported"


class Denied(SourceError):
    """The kernel refused; the message says what permission is missing."""

    reason = "denied"


class Saturated(SourceError):
    """The counter sticks at its maximum, so one value is unknown; never of a whole source."""

    reason = "saturated"


class Failed(SourceError):
    """The read failed in a way that none of the others names."""

    reason = "failed"


class NoNews(Exception):
    """A read found nothing newer than the last one handed out: the frame has no block of it."""


_UNSUPPORTED = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT, errno.ENOTTY}
_DENIED = {errno.EACCES, errno.EPERM}


def from_oserror(error: OSError) -> SourceError:
    """The member of the tree that an errno stands for (EINVAL and EOPNOTSUPP are `Unsupported`)."""
    text = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    if error.errno in _UNSUPPORTED:
        return Unsupported(text)
    if error.errno in _DENIED:
        name = error.filename
        help_ = readable_by(name) if isinstance(name, str) else ""
        return Denied(f"{text}; {help_}" if help_ else text)
    return Failed(text)


Faults = Dict[int, str]
"""Position of a value that is None -> why, as a `SourceError.reason`."""


class Source(ABC):
    """Reads one kind of counter. Subclasses are cheap to make and open nothing until `discover`.

    `name` appears on the wire. `every` is the number of ticks from one read to the next: 1 for what
    is drawn, 10 for what costs the device a query and moves rarely. `deadline_s` bounds one read;
    a read that outlasts it costs this source's values until it comes back, nothing else.
    `min_period_s`, known after `discover`, is how long the kernel answers from the same snapshot:
    the probe reads no sooner, since two reads of one snapshot would look like a rate of zero.
    `values_ns`, known after `read`, is the monotonic clock at which the values were true, where the
    counters carry their own time or were read earlier; None says that it is when the read began.
    """

    name = ""
    every = 1
    min_period_s = 0.0
    deadline_s = 0.2
    values_ns: Optional[int] = None

    def __init__(self, host: HostFS) -> None:
        self.host = host

    @abstractmethod
    def discover(self) -> List[Object]:
        """Find the objects, opening what `read` will use; called again when hardware changes.

        Raises NoData when there is nothing of this kind, SourceError when it cannot be looked at.
        """

    @abstractmethod
    def read(self, faults: Faults) -> List[Optional[int]]:
        """One integer a metric, in `discover`'s order, in the catalog's units.

        A value that cannot be read is None with its reason in `faults`; the others are kept. Raises
        NoNews when it has nothing newer, SourceError when nothing can be read at all.
        """

    def signature(self) -> object:
        """A cheap value that changes when `discover` would find something else."""
        return None

    def close(self) -> None:
        """Give back what `discover` opened; nothing, unless a subclass keeps something open."""
        return
