"""Hosts send over some of their rails only: a collective is as fast as its busiest rail.

The rails of a host carry the same in a collective. One that carries far less, second after second,
is not used as the others are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec
import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import Mask, Rows
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.analysis.thresholds import Share, Ticks
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.wording import rounded_percent

CAUSE = Cause(
    name="uneven_rails",
    title="Uneven rails",
    meaning="hosts send over some of their rails only: a collective is as fast as its busiest rail",
    severity=WARNING,
    picture="rails",
    advice=(
        "Check which NICs NCCL uses (NCCL_DEBUG=INFO, NCCL_IB_HCA, NCCL_CROSS_NIC) and that"
        " every GPU has its own."
    ),
    tables=("uneven_rails",),
    traits=(Trait.NEEDS_TRAFFIC,),
)

_WINDOW_TICKS = 40
"""Ticks in which a job that computes for long sends often enough to be judged: rails are compared
by all that they sent in them, since they meet only at the end of an iteration."""

_SUSPECT = 0.4
"""Share of `lost_min` over the last ticks from which on a host is examined closely."""


class UnevenRailsThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [uneven_rails]: shares of line rate, of the busiest rail, of the bandwidth lost."""

    busy_util: Share
    low: Share
    of_ticks: Ticks
    lost_min: Share


def uneven_rails(inputs: DetectorInput, t: UnevenRailsThresholds) -> Iterator[Condition]:
    """One condition for all hosts with two rails or more that leave out the same rails."""
    found: dict[tuple[int, ...], list[tuple[Rows, Floats]]] = defaultdict(list)
    for rows in _suspects(inputs, t):
        level = _level(t, _sent(inputs, rows))
        if level is None:
            continue
        low = level < t.low * float(level.max())
        found[tuple(inputs.structure.rail[rows[low]].tolist())].append((rows, level))
    subjects = {low_rails: f"rails {_rail_names(low_rails)}" for low_rails in found}
    for low_rails, hosts in found.items():
        subjects[low_rails] = subject = (
            _open_subject(inputs, hosts, set(subjects.values())) or subjects[low_rails]
        )
        yield _condition(inputs, subject, low_rails, hosts)


def _suspects(inputs: DetectorInput, t: UnevenRailsThresholds) -> Iterator[Rows]:
    """The rails of hosts that may be uneven: all have data now, and their totals differ."""
    known = np.isfinite(inputs.util("tx")[:, -1])
    total = inputs.filled("tx_bps").sum(axis=1)
    for _, rows in inputs.structure.rail_tables:
        if rows.shape[1] > 1:
            sums = total[rows]
            top = sums.max(axis=1)
            lost = top - sums.mean(axis=1) >= _SUSPECT * t.lost_min * top
            yield from rows[lost & (top > 0) & known[rows].all(axis=1)]


def _level(t: UnevenRailsThresholds, sent: Floats) -> Floats | None:
    """[rails]: mean utilisation over the active ticks of the window; None unless some rails are
    low in its first and its second half."""
    active = sent[:, sent.max(axis=0) > t.busy_util][:, -t.of_ticks :]
    if active.shape[1] < t.of_ticks:
        return None
    half = active.shape[1] // 2
    low: Mask | None = None
    for part in (active, active[:, :half], active[:, half:]):
        level = part.mean(axis=1)
        is_low = level < t.low * level.max()
        low = is_low if low is None else low & is_low
    whole: Floats = active.mean(axis=1)
    if low is None or not low.any() or 1.0 - float(whole.mean() / whole.max()) < t.lost_min:
        return None
    return whole


def _condition(
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
    low_levels = [level[np.isin(structure.rail[rows], low_rails)] for rows, level in hosts]
    low_util = float(np.mean([level.mean() for level in low_levels]))
    who = names[0] if len(names) == 1 else f"{len(names)} hosts ({names[0]} …)"
    rails = _rail_names(low_rails)
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=subject,
        rows=(*low, *busy),
        text=(
            f"{who} {'sends' if len(names) == 1 else 'send'} at {rounded_percent(low_util)} of"
            f" line rate on {rails} and at {rounded_percent(top)} on the other rails: lost"
            f" bandwidth {rounded_percent(lost)}"
        ),
        evidence=(
            Evidence("hosts", len(names), "hosts"),
            Evidence("busiest rail", round(top * 100, 1), "%"),
            Evidence(rails, round(low_util * 100, 1), "%"),
            Evidence("lost bandwidth", round(lost * 100, 1), "%"),
        ),
        advice=CAUSE.advice,
        confidence=0.85,
        lost=round(lost, 3),
        victims=tuple(names[1:]),
        # The senders of an incast send it on one rail.
        unless=(Trait.ONE_RAIL,) if len(busy) == len(hosts) else (),
    )


def _rail_names(rails: tuple[int, ...]) -> str:
    """`r2, r3`."""
    return ", ".join(f"r{rail}" for rail in rails)


def _open_subject(inputs: DetectorInput, hosts: list[tuple[Rows, Floats]], taken: set[str]) -> str:
    """The subject of an open finding about some of the same hosts, unless another condition has it
    now; empty without one. A subject names rails, not hosts: hosts are seen one after the other.
    """
    mine = {int(row) for rows, _ in hosts for row in rows}
    for finding in inputs.open_of(CAUSE):
        if finding.subject not in taken and mine & set(finding.rows):
            return finding.subject
    return ""


def _sent(inputs: DetectorInput, rows: Rows) -> Floats:
    """[rails, 40]: what the rails of a host sent, as a share of the line rate of the fastest one; 0
    for absent values. Rails of a collective carry the same bytes, whatever their speeds."""
    line = float(np.nanmax(inputs.snapshot.line_rate_bps[rows]))
    share: Floats = np.nan_to_num(inputs.series("tx_bps", rows, _WINDOW_TICKS) / line)
    return share
