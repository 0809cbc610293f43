"""Hosts that send through some of their rails only: a collective is as fast as its busiest rail.

The rails of a host carry the same in a collective. One that carries far less second after second,
and never more, is not used as the others are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import Rows
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.median import medians
from fabmon.analysis.thresholds import UnevenRails as Thresholds
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import rounded_percent

CAUSE = Cause(
    name="uneven_rails",
    title="Uneven rails",
    severity=WARNING,
    picture="rails",
    tables=("uneven_rails",),
    traits=(Trait.NEEDS_TRAFFIC,),
)


_IDLE = 0.05
_ALONE_TICKS = 10
_LOOKS_BACK = 40
"""Ticks in which a job that computes for long sends often enough to be judged."""
_HINT = 0.4
"""Share of `lost_min` over the whole window that makes a host worth a look."""


class UnevenRails:
    """Judges every host with two rails or more, in the seconds in which it sends."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._t = thresholds

    def __call__(self, inputs: DetectorInput) -> Iterator[Condition]:
        """One condition for all hosts that leave out the same rails."""
        found: dict[tuple[int, ...], list[tuple[Rows, Floats]]] = defaultdict(list)
        util = inputs.sent
        for rows in self._suspects(inputs, util):
            level = self._level(_sent(inputs, rows))
            if level is None:
                continue
            low = level < self._t.low * float(level.max())
            found[tuple(inputs.structure.rail[rows[low]].tolist())].append((rows, level))
        subjects = {low_rails: _subject(low_rails) for low_rails in found}
        for low_rails, hosts in found.items():
            subject = (
                _standing_subject(inputs, hosts, set(subjects.values())) or subjects[low_rails]
            )
            subjects[low_rails] = subject
            yield self._condition(inputs, subject, low_rails, hosts)

    def _suspects(self, inputs: DetectorInput, util: Floats) -> Iterator[Rows]:
        """The rails of hosts that may be uneven: all known now, and not alike of late."""
        known = np.isfinite(inputs.util("tx")[:, -1])
        total = util.sum(axis=1)
        for _, rows in inputs.structure.rail_tables:
            if rows.shape[1] > 1:
                sums = total[rows]
                top = sums.max(axis=1)
                lost = top - sums.mean(axis=1) >= _HINT * self._t.lost_min * top
                yield from rows[lost & (top > 0) & known[rows].all(axis=1)]

    def _level(self, sent: Floats) -> Floats | None:
        """[rails] mean utilisation, where some rail is low in each of the last active ticks."""
        top = sent.max(axis=0)
        active = sent[:, top > self._t.busy_util][:, -self._t.of_ticks :]
        if active.shape[1] < self._t.of_ticks:
            return None
        level: Floats = active.mean(axis=1)
        peak = float(level.max())
        low = level < self._t.low * peak
        if not low.any() or 1.0 - float(level.mean()) / peak < self._t.lost_min:
            return None
        # One rail above all others that are in use carries something beside the collective.
        usual = medians(active)
        beside = (~low).sum() == 1 and (usual > _IDLE * active.max(axis=0)).any()
        beside &= len(level) > 2
        # One rail alone may be something else's while the job computes.
        always = (top[-_ALONE_TICKS:] > self._t.busy_util).all()
        if (~low).sum() == 1 and len(level) > 2 and not always:
            return None
        steady = (active[low] < self._t.low * active.max(axis=0)).all()
        return level if steady and not beside else None

    def _condition(
        self,
        inputs: DetectorInput,
        subject: str,
        low_rails: tuple[int, ...],
        hosts: list[tuple[Rows, Floats]],
    ) -> Condition:
        structure = inputs.structure
        lost = float(np.mean([1 - level.mean() / level.max() for _, level in hosts]))
        names = [structure.fabric.ports[int(rows[0])].node for rows, _ in hosts]
        low = [int(r) for rows, _ in hosts for r in rows if structure.rail[r] in low_rails]
        busy = [int(r) for rows, _ in hosts for r in rows if structure.rail[r] not in low_rails]
        top = float(np.mean([level.max() for _, level in hosts]))
        few = [
            level[np.isin(structure.rail[rows], low_rails)].mean() if low_rails else 0.0
            for rows, level in hosts
        ]
        who = names[0] if len(names) == 1 else f"{len(names)} hosts ({names[0]} …)"
        verb = "sends" if len(names) == 1 else "send"
        rails = ", ".join(f"r{rail}" for rail in low_rails)
        return Condition(
            cause="uneven_rails",
            severity=WARNING,
            subject=subject,
            rows=(*low, *busy),
            text=(
                f"{who} {verb} at {rounded_percent(float(np.mean(few)))} of line rate on {rails}"
                f" and at {rounded_percent(top)} on the other rails;"
                f" that loses {rounded_percent(lost)}"
            ),
            evidence=(
                Evidence("hosts", len(names), "hosts"),
                Evidence("busiest rail", round(top * 100, 1), "%"),
                Evidence(f"{rails}", round(float(np.mean(few)) * 100, 1), "%"),
                Evidence("lost bandwidth", round(lost * 100, 1), "%"),
            ),
            advice=(
                "See which NICs NCCL uses (NCCL_DEBUG=INFO, NCCL_IB_HCA, NCCL_CROSS_NIC) and that"
                " every GPU has its own."
            ),
            confidence=0.85,
            lost=round(lost, 3),
            victims=tuple(names[1:]),
            # The senders of an incast send it on one rail.
            unless=(Trait.ONE_RAIL,) if len(busy) == len(hosts) else (),
        )


def _subject(low_rails: tuple[int, ...]) -> str:
    """`rails r2, r3`, however many hosts leave them out: hosts are heard one after the other."""
    return f"rails {', '.join(f'r{rail}' for rail in low_rails)}"


def _standing_subject(
    inputs: DetectorInput, hosts: list[tuple[Rows, Floats]], taken: set[str]
) -> str:
    """What it was called when it opened, as long as it is about some of the same hosts and nothing
    else is called that now.
    """
    mine = {int(row) for rows, _ in hosts for row in rows}
    for key, standing in inputs.standing.items():
        is_free = key.startswith("uneven_rails:") and standing.subject not in taken
        if is_free and mine & set(standing.rows):
            return standing.subject
    return ""


def _sent(inputs: DetectorInput, rows: Rows) -> Floats:
    """[rails, 40]: share of line rate that the rails of a host sent; what is not known is 0."""
    snapshot = inputs.snapshot
    sent = snapshot.window("tx_bps", rows.tolist(), _LOOKS_BACK)
    share: Floats = np.nan_to_num(sent / snapshot.line_rate_bps[rows][:, None])
    return share
