"""The fewest queued links that explain all slowed NICs.

One queue slows a whole job, and its marks are seen in many places. A link out of a leaf can have
marked what the hosts behind that leaf send, a link into a leaf what the hosts behind it receive.
For the hosts at the other ends of these flows it can be the cause as well, and for no others. The
hosts' queue pairs say which hosts exchange traffic; a host without queue pair reports may exchange
traffic with any.

Full receivers explain marks too: where the receivers whose own link is full see nearly all marks,
the queue is an incast at the last hop. CNPs are conserved: what receivers send, senders handle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabmon.analysis.evidence.detector_input import TICKS, DetectorInput
from fabmon.analysis.fabric_structure import NONE, Mask, Rows
from fabmon.fabric.snapshot import Floats

_AS_FULL = 0.98
"""Share of another link's utilisation, 0 to 1, from which on a link counts as as full as that one:
the counters of two switches are not read at the same instant."""

_IN_STEP = 0.9
"""Two links move in step when the ratio of their loads varies by less than this, least over
greatest: a synchronous job gives both the same waveform."""

FULL = 0.9
"""Share of line rate, 0 to 1, at which a receiver's link is full."""

_FULL_OF_TICKS, _FULL_TICKS = 3, 2
"""A receiver is full now when it was full in so many of the last so many ticks."""

_EXPLAINS_ALL = 0.7
"""Share of the marks, 0 to 1, that full receivers must have seen to explain all of them."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """Links of one group that may have a queue.

    `tops` is [TICKS], the utilisation of the fullest link in the ticks that count, else 0. `hosts`
    are the NICs behind the group's switch, which the links enter (`is_inward`) or leave. `slowed`
    are those of them by which a queue was seen; None where that may come from any queue.
    """

    tops: Floats
    is_inward: bool
    hosts: Rows
    slowed: Rows | None


def is_to_blame(
    inputs: DetectorInput, suspect: Suspect, others: list[Suspect], nearly_full: float
) -> bool:
    """Whether a suspect is needed to explain the slowed NICs, given the others.

    It is when no other was fuller in a tick that counts. Beside fuller ones it must have been
    `nearly_full` (share of line rate) in one tick, and either slow NICs that they cannot have
    slowed, or not move in step with them.
    """
    counts = suspect.tops > 0
    least = suspect.tops[counts] / _AS_FULL
    fuller = [each for each in others if (each.tops[counts] > least).any()]
    if not fuller:
        return True
    if suspect.slowed is None or suspect.tops.max() < nearly_full or not len(suspect.slowed):
        return False
    in_step = any(_is_in_step(suspect.tops, each.tops) for each in fuller)
    return not in_step or not _explain_all(inputs, suspect, fuller)


def _is_in_step(tops: Floats, fuller: Floats) -> bool:
    """Whether a link always carries about the same share of a fuller one's load. Such a link is
    never full: the fuller one would have to carry more than it can.
    """
    both = (tops > 0) & (fuller > 0)
    share = tops[both] / fuller[both]
    return bool(len(share)) and bool(share.min() >= _IN_STEP * share.max())


def _explain_all(inputs: DetectorInput, suspect: Suspect, fuller: list[Suspect]) -> bool:
    """Whether fuller links can have slowed every NIC by which the suspect's queue was seen."""
    left = suspect.slowed
    if left is None:
        return True
    for same_direction in (True, False):
        hosts = [
            each.hosts for each in fuller if same_direction == (each.is_inward == suspect.is_inward)
        ]
        behind = np.unique(np.concatenate([np.empty(0, np.intp), *hosts]))
        if same_direction:
            left = np.setdiff1d(left, behind)
        elif len(left) and len(behind):
            left = left[~may_exchange(inputs, left, behind)]
    return not len(left)


def may_exchange(inputs: DetectorInput, nics: Rows, others: Rows) -> Mask:
    """[nics]: whether each has a flow to one of the others, or one whose destination is not known.

    True for all where queue pairs are not reported, or not all of them are in the flow table.
    """
    table, ports = inputs.snapshot.connections.flows_if_quick, inputs.structure.fabric.ports
    if table is None or table.left_out:
        return np.ones(len(nics), np.bool_)
    ends = np.zeros(len(ports) + 1, np.bool_)
    ends[others] = True
    ends[NONE] = True
    sends = np.zeros(len(ports), np.bool_)
    sends[table.src[ends[table.dst]]] = True
    silent = np.array([ports[int(nic)].node not in table.reporting for nic in nics])
    may: Mask = sends[nics] | silent
    return may


@dataclass(frozen=True, slots=True)
class FullReceivers:
    """`full` is [ports]: receivers whose own link is full. By tick, [TICKS]: whether any rail saw
    `marks`, and whether the full receivers saw nearly all of them and so `explain` them.
    """

    full: Mask
    marks: Mask
    explain: Mask


def full_receivers(inputs: DetectorInput) -> FullReceivers:
    """The full receivers of a tick, computed once."""
    return inputs.once(_full_receivers)


def _full_receivers(inputs: DetectorInput) -> FullReceivers:
    rail = inputs.structure.is_rail
    marks = np.nan_to_num(np.fmax(inputs.window("ecn"), inputs.window("cnp_sent")))
    marks = np.where(rail[:, None], marks, 0)
    if not marks.any():
        never = np.zeros(TICKS, np.bool_)
        return FullReceivers(np.zeros(len(rail), np.bool_), never, never)
    with np.errstate(invalid="ignore"):
        at_line_rate = (inputs.received >= FULL) & rail[:, None]
        full = at_line_rate[:, -_FULL_OF_TICKS:].sum(axis=1) >= _FULL_TICKS
        theirs = np.where(at_line_rate | full[:, None], marks, 0).sum(axis=0)
        explain: Mask = theirs >= _EXPLAINS_ALL * np.maximum(marks.sum(axis=0), 1)
    seen: Mask = np.any(marks > 0, axis=0)
    return FullReceivers(full, seen, explain)
