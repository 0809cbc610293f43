"""Which of several links with a queue is to blame for whom: as few as explain all who are slowed.

A queue slows a whole job, and its marks are seen in many places. A link out of a leaf can have
marked what the hosts behind that leaf send, a link into one what the hosts behind it get; for the
hosts at the other ends of these flows it can be to blame as well, and for nobody else. Who talks to
whom is what the hosts' queue pairs tell; a host that does not tell may talk to anybody.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput
from fabmon.analysis.fabric_structure import NONE, Mask, Rows
from fabmon.fabric.snapshot import Floats

_LEADS_ALL = 0.98
"""Share of another link's utilisation from which on a link is as full as that one."""

_IN_STEP = 0.9
"""Two links move in step if the share that one carries of the other's load varies less."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """Links of a group that may have a queue.

    `tops` is [ticks], the utilisation of the hottest where it counts, else 0. `hosts` are the NICs
    behind the group's switch, which the links enter (`is_inward`) or leave. `slowed` are those of
    them that show a queue; None where what shows it may come from any queue.
    """

    tops: Floats
    is_inward: bool
    hosts: Rows
    slowed: Rows | None


def is_to_blame(
    inputs: DetectorInput, suspect: Suspect, others: list[Suspect], nearly_full: float
) -> bool:
    """Whether links that were fuller in a tick that counts do not explain what it is suspected for.

    Beside fuller ones, it must have been `nearly_full` (share of line rate) in one of the ticks.
    """
    counts = suspect.tops > 0
    least = suspect.tops[counts] / _LEADS_ALL
    fuller = [each for each in others if (each.tops[counts] > least).any()]
    if not fuller:
        return True
    if suspect.slowed is None or suspect.tops.max() < nearly_full or not len(suspect.slowed):
        return False
    in_step = any(_is_in_step(suspect.tops, each.tops) for each in fuller)
    return not in_step or not _explain_all(inputs, suspect, fuller)


def _is_in_step(tops: Floats, fuller: Floats) -> bool:
    """Whether it always carries about the same share of what a fuller one does: then it is never
    full, since that one would have to carry more than it can.
    """
    both = (tops > 0) & (fuller > 0)
    share = tops[both] / fuller[both]
    return bool(len(share)) and bool(share.min() >= _IN_STEP * share.max())


def _explain_all(inputs: DetectorInput, suspect: Suspect, fuller: list[Suspect]) -> bool:
    """Whether the fuller ones can have slowed everybody by whom its queue was seen."""
    left = suspect.slowed
    if left is None:
        return True
    for is_beside in (True, False):
        hosts = [
            each.hosts for each in fuller if is_beside == (each.is_inward == suspect.is_inward)
        ]
        theirs = np.unique(np.concatenate([np.empty(0, np.intp), *hosts]))
        if is_beside:
            left = np.setdiff1d(left, theirs)
        elif len(left) and len(theirs):
            left = left[~may_talk(inputs, left, theirs)]
    return not len(left)


def may_talk(inputs: DetectorInput, nics: Rows, others: Rows) -> Mask:
    """[nics]: whether each has a flow to one of the others, or one whose end is not known."""
    table, ports = inputs.snapshot.connections.flows_if_quick, inputs.structure.fabric.ports
    if table is None or table.left_out:
        return np.ones(len(nics), np.bool_)
    ends = np.zeros(len(ports) + 1, np.bool_)
    ends[others] = True
    ends[NONE] = True
    talks = np.zeros(len(ports), np.bool_)
    talks[table.src[ends[table.dst]]] = True
    silent = np.array([ports[int(nic)].node not in table.reporting for nic in nics])
    may: Mask = talks[nics] | silent
    return may


# Receivers whose own link is full: marks on what they get were made at the last hop, not before.
#
# CNPs are conserved: what receivers send is what senders handle. As far as the marks come from full
# receivers, an incast explains them, and no link inside the fabric needs to be blamed.


FULL = 0.9
"""Share of line rate at which a receiver's link is full."""
_TICKS = 3
_MOST = 0.7
"""Share of the marks that full receivers must have seen to explain all."""


@dataclass(frozen=True, slots=True)
class FullReceivers:
    """`full` is [ports]. By tick, [TICKS]: whether anybody saw `marks`, and whether the full ones
    `explain` nearly all of them.
    """

    full: Mask
    marks: Mask
    explain: Mask


def full_receivers(inputs: DetectorInput) -> FullReceivers:
    """Worked out once a tick."""
    if inputs.receivers is None:
        inputs.receivers = _full_receivers(inputs)
    return inputs.receivers


def _full_receivers(inputs: DetectorInput) -> FullReceivers:
    rail = inputs.structure.is_rail
    marks = np.nan_to_num(np.fmax(inputs.window("ecn"), inputs.window("cnp_sent")))
    marks = np.where(rail[:, None], marks, 0)
    if not marks.any():
        none = np.zeros(TICKS, np.bool_)
        return FullReceivers(np.zeros(len(rail), np.bool_), none, none)
    with np.errstate(invalid="ignore"):
        at_line_rate = (inputs.received >= FULL) & rail[:, None]
        full = at_line_rate[:, -_TICKS:].sum(axis=1) >= 2
        theirs = np.where(at_line_rate | full[:, None], marks, 0).sum(axis=0)
        explain: Mask = theirs >= _MOST * np.maximum(marks.sum(axis=0), 1)
    seen: Mask = np.any(marks > 0, axis=0)
    return FullReceivers(full, seen, explain)
