"""Two runs compared, for a person: first the answer, then how it was found, then every link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fabmon.analysis.fluctuation.comparison import (
    BANDWIDTH,
    LEVEL,
    MIN_CHANGE,
    Comparison,
    Difference,
)
from fabmon.fabric.wording import bit_rate
from fabmon.report.scene_report import aligned

_MOST_LINKS = 40


def comparison_table(found: Comparison) -> str:
    """The whole report."""
    return "\n".join(_lines(found))


def _lines(found: Comparison) -> Iterator[str]:
    yield _answer(found.headlines)
    yield from map(_sentence, found.headlines)
    real = [each for each in found.links if each.real]
    tested = [each for each in found.links if each.p is not None]
    yield (
        f"{len(real)} of {len(tested)} rails, pairs and links changed by more than the noise."
        if tested
        else "No rail, pair or link could be tested."
    )
    yield ""
    for side, names, seconds in (("A", found.a, found.a_s), ("B", found.b, found.b_s)):
        yield f"{side}: {', '.join(names)} ({seconds / 60:.3g} min)"
    yield from found.notes
    if found.unmatched:
        yield f"Only on one side: {', '.join(found.unmatched[:8])}" + (
            f" and {len(found.unmatched) - 8} more" if len(found.unmatched) > 8 else ""
        )
    yield ""
    order = sorted(found.links, key=lambda each: (not each.real, -abs(each.change or 0.0)))
    shown = [*found.headlines, *order[:_MOST_LINKS]]
    head = (
        "WHAT",
        "A",
        "B",
        "CHANGE",
        "95 %",
        "p",
        "REAL",
        "P5 A",
        "P5 B",
        "CoV A",
        "CoV B",
    )
    yield from aligned([head, *map(_row, shown)], left=1)
    if len(order) > _MOST_LINKS:
        yield f"and {len(order) - _MOST_LINKS} more that changed less; --format json has all"


def _answer(headlines: Sequence[Difference]) -> str:
    """Whether the difference is real, in one sentence."""
    real = [each for each in headlines if each.real]
    tested = [each for each in headlines if each.p is not None]
    if real:
        return f"Yes, it is real: {', '.join(f'{_what(each)} is {_size(each)}' for each in real)}."
    if not headlines:
        return "Cannot tell: A and B have no rail and no job in common that communicates."
    if not tested:
        return "Cannot tell: the recordings are too short."
    small = any((each.p or 0.0) < LEVEL and abs(each.change or 0.0) < MIN_CHANGE for each in tested)
    least = f", or less than {MIN_CHANGE * 100:.1f} %" if small else ""
    reach = max(map(_reach, tested))
    if reach >= 1:
        return f"No: what differs is within the noise{least}; so much noise hides any difference."
    ruled_out = f"a difference of more than {reach * 100:.1f} % is ruled out"
    return f"No: what differs is within the noise{least}; {ruled_out}."


def _sentence(each: Difference) -> str:
    values = f"{_value(each, each.before)} in A, {_value(each, each.after)} in B"
    if each.change is None or each.low is None or each.high is None or each.p is None:
        return f"  Not tested: {_what(each)}: {values}; {each.untested}."
    ranged = f"95 % sure: {each.low * 100:+.1f} to {each.high * 100:+.1f} %, {_chance(each.p)}"
    said = f"{_what(each)} is {_size(each)}: {values} ({ranged})"
    if each.real:
        return f"  Real: {said}."
    if each.p < LEVEL and abs(each.change) < MIN_CHANGE:
        return f"  Too small: {said}; less than {MIN_CHANGE * 100:.1f} % is not called real."
    if each.p < LEVEL:
        return f"  Perhaps: {said}; among several answers one may be such by chance."
    if _reach(each) >= 1:
        return f"  Noise: {said}."
    return f"  Noise: {said}; more than {_reach(each) * 100:.1f} % is ruled out."


def _what(each: Difference) -> str:
    return f"{'the bandwidth' if each.what == BANDWIDTH else 'an iteration'} of {each.name}"


def _size(each: Difference) -> str:
    change = each.change or 0.0
    ways = ("higher", "lower") if each.what == BANDWIDTH else ("longer", "shorter")
    said = f"{abs(change) * 100:.1f} %"
    return "the same in B to 0.1 %" if said == "0.0 %" else f"{said} {ways[change < 0]} in B"


def _reach(each: Difference) -> float:
    """The largest change that the interval leaves possible."""
    return max(abs(each.low or 0.0), abs(each.high or 0.0))


def _chance(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _value(each: Difference, value: float) -> str:
    if value != value:
        return "nothing"
    return bit_rate(value) if each.what == BANDWIDTH else f"{value:.3f} s"


def _row(each: Difference) -> tuple[str, ...]:
    known = each.change is not None and each.low is not None and each.high is not None
    tested = (
        (
            f"{(each.change or 0.0) * 100:+.1f} %",
            f"{(each.low or 0.0) * 100:+.1f} to {(each.high or 0.0) * 100:+.1f}",
            f"{each.p:.2g}",
            "yes" if each.real else "no",
        )
        if known
        else ("·", "·", "·", "too short")
    )
    name = each.name if each.what == BANDWIDTH else f"iterations of {each.name}"
    return (
        name,
        _value(each, each.before),
        _value(each, each.after),
        *tested,
        *("·" if p5 is None else _value(each, p5) for p5 in (each.p5_before, each.p5_after)),
        *("·" if c is None else f"{c * 100:.1f} %" for c in (each.cov_before, each.cov_after)),
    )
