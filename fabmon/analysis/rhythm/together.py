"""Which hosts work on the same thing: those whose traffic rises and falls together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.rhythm.pulses import Floats

LEAST_SAMPLES = 20

_LIKE = 0.7
_SAME = 0.9
_BELONGS = 0.5
_APART = 0.3
_MOST_GROUPS = 64
_LEAST_VARIATION = 0.15
_LEAST_KNOWN = 0.8


@dataclass(frozen=True, slots=True)
class Group:
    """Hosts by index. `cohesion` is their mean correlation with what they do together, to 1.

    `is_sure` says that no other group moves so much like this one that hosts may be in the wrong
    one.
    """

    members: tuple[int, ...]
    cohesion: float
    is_sure: bool


def together(activity: NDArray[np.floating]) -> list[Group]:
    """Groups among [hosts, samples], the largest first; hosts that do not vary are in none.

    Leaders first: a host that is in no group yet takes all that are like it. Then groups that move
    as one are joined, and every host goes to the group that it is most like. A few products of a
    matrix and a vector: a thousand hosts do not cost a million correlations.
    """
    forms, alive = _forms(activity)
    centres: list[Floats] = []
    sizes: list[int] = []
    free = alive.copy()
    while free.any() and len(centres) < _MOST_GROUPS:
        leader = int(np.argmax(free))
        like = free & (forms @ forms[leader] > _LIKE)
        like[leader] = True
        free &= ~like
        centres.append(_unit(forms[like].mean(axis=0)))
        sizes.append(int(like.sum()))
    if not centres:
        return []
    middles = _joined(_without_strays(np.stack(centres), np.array(sizes)))
    closeness = forms @ middles.T
    best = np.argmax(closeness, axis=1)
    score = closeness[np.arange(len(forms)), best]
    belongs = alive & (score > _BELONGS)
    near = middles @ middles.T
    np.fill_diagonal(near, -1.0)
    groups = []
    for number in range(len(middles)):
        members = np.flatnonzero(belongs & (best == number))
        if len(members):
            cohesion = float(score[members].mean())
            apart = cohesion - float(near[number].max()) > _APART if len(middles) > 1 else True
            groups.append(Group(tuple(members.tolist()), cohesion, apart))
    return sorted(groups, key=lambda group: (-len(group.members), group.members))


def _forms(activity: NDArray[np.floating]) -> tuple[Floats, NDArray[np.bool_]]:
    """Each host's curve without its mean and scale, and which hosts have one at all."""
    known = np.isfinite(activity)
    share = known.mean(axis=1) if activity.size else np.zeros(len(activity))
    clean = np.where(known, activity, 0.0).astype(np.float64)
    mean = clean.sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    centred = np.where(known, clean - mean[:, None], 0.0)
    length = np.sqrt((centred * centred).sum(axis=1))
    deviation = length / np.sqrt(max(activity.shape[1], 1))
    alive = (share >= _LEAST_KNOWN) & (mean > 0) & (deviation > _LEAST_VARIATION * mean)
    forms: Floats = np.where(alive[:, None], centred / np.maximum(length, 1e-12)[:, None], 0.0)
    return forms, alive


def _without_strays(centres: Floats, sizes: NDArray[np.intp]) -> Floats:
    """The centres but those of one noisy host that is rather like a group: it belongs there."""
    large = sizes > 1
    if large.all() or not large.any():
        return centres
    like = (centres @ centres[large].T).max(axis=1)
    kept: Floats = centres[large | (like <= _BELONGS)]
    return kept


def _joined(centres: Floats) -> Floats:
    """The centres, those that move as one made into one."""
    left = list(range(len(centres)))
    middles = []
    while left:
        near = [other for other in left if float(centres[left[0]] @ centres[other]) > _SAME]
        near = near or left[:1]
        middles.append(_unit(centres[near].mean(axis=0)))
        left = [other for other in left if other not in near]
    return np.stack(middles)


def _unit(curve: Floats) -> Floats:
    return curve / max(float(np.linalg.norm(curve)), 1e-12)
