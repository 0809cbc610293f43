"""What a counter source is: the contract between one small reader and the probe's loop.

Errors a source may raise, one tree:

    SourceError
    |-- NoData        nothing of its kind on this machine (no such class directory): normal, silent
    |-- Unsupported   the hardware exists, this kernel or driver does not offer the counters
    |-- Denied        the kernel refused; the message names the group or capability that would help
    |-- Saturated     of one value: the counter sticks at its maximum, so its value is unknown
    `-- Failed        anything else, with the kernel's message
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from typing import Dict, List, NamedTuple, Optional, Sequence

from collectors.coverage import Coverage
from collectors.hostfs import HostFS, readable_by, selinux_text
from collectors.wire import Object

MASK32, MASK64 = 2**32 - 1, 2**64 - 1
"""The largest values of counters, at which those that do not wrap stay."""


class SourceError(Exception):
    """A source, or one value of it, cannot be read; `reason` is the word used on the wire."""

    reason = "failed"


class NoData(SourceError):
    """Nothing of this source's kind exists on this machine."""

    reason = "absent"


class Unsupported(SourceError):
    """The hardware exists; the kernel or the driver does not offer this counter."""

    reason = "unsupported"


class Denied(SourceError):
    """The kernel refused; the message says which permission is missing."""

    reason = "denied"


class Saturated(SourceError):
    """The counter sticks at its maximum, so one value is unknown; never of a whole source."""

    reason = "saturated"


class Failed(SourceError):
    """The read failed for a reason that none of the other classes names."""


class NoNews(Exception):
    """A read found nothing newer than the previous one: the frame gets no block of this source."""


_UNSUPPORTED = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT, errno.ENOTTY}
_DENIED = {errno.EACCES, errno.EPERM}


def from_oserror(error: OSError) -> SourceError:
    """The SourceError for an errno (EINVAL and EOPNOTSUPP are `Unsupported`)."""
    text = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
    if error.errno in _UNSUPPORTED:
        return Unsupported(text)
    if error.errno in _DENIED:
        advice = readable_by(error.filename) if isinstance(error.filename, str) else ""
        advice = advice or selinux_text()
        return Denied(f"{text}; {advice}" if advice else text)
    return Failed(text)


Faults = Dict[int, str]
"""Position of a value that is None -> why, as a `SourceError.reason`."""


class Logged(NamedTuple):
    """Something that a log reports, as an event: the device that it is about (empty: the node), the
    name of its kind in the catalog of messages, and its text."""

    device: str
    name: str
    text: str


class Source(ABC):
    """Reads one kind of counter. Subclasses are cheap to create and open nothing until `discover`.

    `name` appears on the wire. `every` is the number of ticks from one read to the next: 1 for what
    is drawn, 10 for what costs the device a query and rarely changes. `deadline_s` bounds one read;
    a read that takes longer costs this source its values until it returns, and nothing else.
    `min_period_s`, known after `discover`, is how long the kernel answers from the same snapshot:
    the probe reads no sooner, since two reads of one snapshot would look like a rate of zero.
    `values_ns`, known after `read`, is the monotonic clock at which the values were true, where the
    counters carry their own time or were read earlier; None means the start of the read.
    `is_background`: the values come from a thread at its own times; the probe asks every tick, and
    `min_period_s` is then the usual time from one to the next.
    `argument` is what the settings say to this source, as a directory; empty for most.
    `coverage`, known after `discover`, says for each driver what was seen and not read; `limits`
    names, a sentence each, what of this machine is not observable although nothing failed.
    """

    name = ""
    every = 1
    min_period_s = 0.0
    deadline_s = 0.2
    values_ns: Optional[int] = None
    is_background = False
    argument = ""

    def __init__(self, host: HostFS) -> None:
        self.host = host
        self.coverage: List[Coverage] = []
        self.limits: List[str] = []

    @abstractmethod
    def discover(self) -> List[Object]:
        """Find the objects and open what `read` will use; called again when hardware changes.

        Raises NoData when there is nothing of this kind, SourceError when it cannot be examined.
        """

    @abstractmethod
    def read(self, faults: Faults) -> List[Optional[int]]:
        """One integer per metric, in `discover`'s order, in the catalog's units.

        A value that cannot be read is None with its reason in `faults`; the others are kept. Raises
        NoNews when it has nothing newer, SourceError when nothing can be read at all.
        """

    def logged(self) -> Sequence[Logged]:
        """What was logged since the last call; called after each read."""
        return ()

    def companions(self) -> "List[Source]":
        """Sources that are read beside this one, in blocks of their own; usually none."""
        return []

    def signature(self) -> object:
        """A cheap value that changes when `discover` would find something else."""
        return None

    def close(self) -> None:
        """Close what `discover` opened; nothing, unless a subclass keeps something open."""
        return
