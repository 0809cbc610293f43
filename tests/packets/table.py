"""The score of scenes as text: a table, and every wrong and missed finding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from tests.packets.judge import Verdict
from tests.packets.score import SceneScore, totals


def table(scores: Sequence[SceneScore]) -> str:
    """A row per scene, and the totals."""
    width = max((len(each.name) for each in scores), default=5)
    lines = [f"{'scene':{width}}  right  wrong  wanted  found  time   title"]
    for each in scores:
        times = each.flag_times_s
        flag = f"{median(times):.0f} s" if times else "-"
        lines.append(
            f"{each.name:{width}}  {each.right:5}  {each.wrong:5}  {each.wanted:6}"
            f"  {len(times):5}  {flag:5}  {each.title}"
        )
    every = totals(scores)
    flag = f"{every.flag_s:.1f} s" if every.flag_s is not None else "-"
    lines += [
        "",
        f"precision {_share(every.precision)} ({every.right} right, {every.wrong} wrong)",
        f"recall {_share(every.recall)} ({every.found} of {every.wanted})",
        f"healthy scenes disturbed: {every.disturbed} of {every.healthy}",
        f"time to flag (median): {flag}",
    ]
    return "\n".join(lines)


def faults(scores: Sequence[SceneScore]) -> Iterator[str]:
    """A line for each wrong finding, and for each that was missed."""
    for score in scores:
        for judged in score.judgement.findings:
            if judged.verdict is not Verdict.WRONG:
                continue
            finding = judged.finding
            bound = "up to " if finding.is_upper_bound else ""
            yield (
                f"WRONG  {score.name} {finding.opened_s:.0f} s {finding.cause} {finding.subject}"
                f" (confidence {finding.confidence:.2f}, lost {bound}{finding.lost:.0%};"
                f" {judged.reason}): {finding.text}"
            )
        for missed in score.missed:
            wanted = missed.wanted
            some = f", {wanted.need} of" if wanted.need < len(wanted.subjects) > 2 else ""
            yield f"MISSED {score.name} {wanted.cause}{some} {' '.join(wanted.subjects)}"


def _share(value: float | None) -> str:
    return f"{value:.3f}" if value is not None else "-"
