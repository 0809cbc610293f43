"""The score of scenes as text: a table, and every wrong and missed finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from tests.packets.judge import Verdict
from tests.packets.score import SceneScore, Totals, totals

Scores = Mapping[str, Sequence[SceneScore]]
"""The same scenes as each commit judged them, by its name."""

_FIGURES = "right  wrong  found  time"
_TOTALS: dict[str, Callable[[Totals], str]] = {
    "precision": lambda t: f"{_share(t.precision)} ({t.right} right, {t.wrong} wrong)",
    "recall": lambda t: f"{_share(t.recall)} ({t.found} of {t.wanted})",
    "healthy scenes disturbed": lambda t: f"{t.disturbed} of {t.healthy}",
    "time to flag (median)": lambda t: f"{t.flag_s:.1f} s" if t.flag_s is not None else "-",
}


def table(scores: Scores) -> str:
    """A row per scene, and the totals, with the figures of all commits side by side."""
    names = list(scores)
    rows = [["", "", *names, ""], ["scene", "wanted", *(_FIGURES for _ in names), "title"]]
    for same in zip(*scores.values(), strict=True):
        scene = same[0]
        rows.append([scene.name, f"{scene.wanted:6}", *map(_figures, same), scene.title])
    every = [totals(each) for each in scores.values()]
    of_all = [[label, *map(write, every)] for label, write in _TOTALS.items()]
    return "\n".join([*_aligned(rows), "", *_aligned([["", *names], *of_all])])


def faults(scores: Scores) -> Iterator[str]:
    """A line for each wrong finding, and for each that was missed, of every commit."""
    for same in zip(*scores.values(), strict=True):
        for name, score in zip(scores, same, strict=True):
            yield from _faults_of(name, score)


def _faults_of(name: str, score: SceneScore) -> Iterator[str]:
    for judged in score.judgement.findings:
        if judged.verdict is not Verdict.WRONG:
            continue
        finding = judged.finding
        bound = "up to " if finding.is_upper_bound else ""
        yield (
            f"WRONG  {name} {score.name} {finding.opened_s:.0f} s {finding.cause} {finding.subject}"
            f" (confidence {finding.confidence:.2f}, lost {bound}{finding.lost:.0%};"
            f" {judged.reason}): {finding.text}"
        )
    for missed in score.missed:
        wanted = missed.wanted
        some = f", {wanted.need} of" if wanted.need < len(wanted.subjects) > 2 else ""
        yield f"MISSED {name} {score.name} {wanted.cause}{some} {' '.join(wanted.subjects)}"


def _figures(score: SceneScore) -> str:
    """The figures of a scene, below the words of _FIGURES."""
    times = score.flag_times_s
    flag = f"{median(times):.0f} s" if times else "-"
    return f"{score.right:5}  {score.wrong:5}  {len(times):5}  {flag:>4}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows with as many cells each, below one another."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        yield "   ".join(cells).rstrip()


def _share(value: float | None) -> str:
    return f"{value:.3f}" if value is not None else "-"
