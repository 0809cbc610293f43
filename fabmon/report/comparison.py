"""A comparison of runs as text: first the answer, then the method, then every link."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fabmon.analysis.fluctuation.comparison import (
    BANDWIDTH,
    LEVEL,
    MIN_CHANGE,
    Comparison,
    Difference,
)
from fabmon.fabric.time_wording import measured
from fabmon.fabric.wording import (
    ABSENT,
    bit_rate,
    name_list,
    percent,
    percent_change,
    rounded_percent,
)
from fabmon.report.output import aligned

_MAX_LINKS = 40
_EQUAL = 0.0005
"""A smaller change than this share is shown as none."""
_MAX_UNMATCHED = 8
_COLUMNS = ("WHAT", "A", "B", "CHANGE", "95 %", "p", "REAL", "P5 A", "P5 B", "CoV A", "CoV B")


def comparison_table(found: Comparison) -> str:
    """The whole report."""
    return "\n".join(_lines(found))


def _lines(found: Comparison) -> Iterator[str]:
    if found.identical:
        yield "No: A and B are the same measurements; nothing differs."
    else:
        yield from _tested(found)
    yield ""
    for side, names, seconds in (("A", found.a, found.a_s), ("B", found.b, found.b_s)):
        yield f"{side}: {', '.join(names)} ({seconds / 60:.3g} min)"
    yield from found.notes
    if found.unmatched:
        yield f"Only on one side: {name_list(found.unmatched_labels, _MAX_UNMATCHED)}"
    yield ""
    order = sorted(found.links, key=lambda each: (not each.real, -abs(each.change or 0.0)))
    shown = [*found.headlines, *order[:_MAX_LINKS]]
    yield from aligned([_COLUMNS, *map(_row, shown)], left=1)
    if len(order) > _MAX_LINKS:
        less = "" if found.identical else " that changed less"
        yield f"and {len(order) - _MAX_LINKS} more{less}; --format json has all"


def _tested(found: Comparison) -> Iterator[str]:
    """The answer, a sentence for each headline, and how many links differ."""
    yield _answer(found.headlines)
    yield from map(_sentence, found.headlines)
    real = [each for each in found.links if each.real]
    tested = [each for each in found.links if each.p is not None]
    yield (
        f"{len(real)} of {len(tested)} rails, pairs and links changed by more than the noise."
        if tested
        else "No rail, pair or link could be tested."
    )


def _answer(headlines: Sequence[Difference]) -> str:
    """Whether the difference is real, in one sentence."""
    real = [f"{_subject(each)} is {_size(each)}" for each in headlines if each.real]
    tested = [each for each in headlines if each.p is not None]
    if real:
        return f"Yes, the difference is real: {', '.join(real)}."
    if not headlines:
        return "Not known: A and B have no communicating rail or job in common."
    if not tested:
        return "Not known: the recordings are too short."
    least = f", or less than {rounded_percent(MIN_CHANGE)}" if any(map(_is_small, tested)) else ""
    return f"No: the difference is within the noise{least}; {_ruled_out(max(map(_reach, tested)))}."


def _sentence(each: Difference) -> str:
    values = f"{_value(each, each.before)} in A, {_value(each, each.after)} in B"
    if each.p is None:
        return f"  Not tested: {_subject(each)}: {values}; {each.untested}."
    chance = "p < 0.001" if each.p < 0.001 else f"p = {each.p:.2g}"
    text = (
        f"{_subject(each)} is {_size(each)}: {values} (95 % confidence: {_range(each)} %, {chance})"
    )
    if each.real:
        return f"  Real: {text}."
    if _is_small(each):
        return f"  Too small: {text}; less than {rounded_percent(MIN_CHANGE)} is not called real."
    if each.p < LEVEL:
        return f"  Perhaps: {text}; one of several tests may have such a result by chance."
    return f"  Noise: {text}; {_ruled_out(_reach(each))}."


def _subject(each: Difference) -> str:
    return f"{'the bandwidth' if each.what == BANDWIDTH else 'the step time'} of {each.label}"


def _size(each: Difference) -> str:
    change = each.change or 0.0
    words = ("higher", "lower") if each.what == BANDWIDTH else ("longer", "shorter")
    if abs(change) < _EQUAL:
        return f"equal to within {rounded_percent(2 * _EQUAL)}"
    return f"{rounded_percent(abs(change))} {words[change < 0]} in B"


def _is_small(each: Difference) -> bool:
    """Whether a difference is certain, but too small to be called real."""
    return (each.p or 0.0) < LEVEL and abs(each.change or 0.0) < MIN_CHANGE


def _range(each: Difference) -> str:
    return f"{(each.low or 0.0) * 100:+.1f} to {(each.high or 0.0) * 100:+.1f}"


def _reach(each: Difference) -> float:
    """The largest change that the interval leaves possible, as a share."""
    return max(abs(each.low or 0.0), abs(each.high or 0.0))


def _ruled_out(reach: float) -> str:
    if reach >= 1:
        return "with so much noise no difference can be ruled out"
    return f"a difference of more than {rounded_percent(max(reach, 0.0001))} is ruled out"


def _value(each: Difference, value: float | None) -> str:
    if value is None or value != value:
        return ABSENT
    return bit_rate(value) if each.what == BANDWIDTH else measured(value)


def _row(each: Difference) -> tuple[str, ...]:
    tested: tuple[str, ...] = (ABSENT, ABSENT, ABSENT, "too short")
    if each.p is not None:
        change = percent_change(each.change or 0.0)
        tested = (change, _range(each), f"{each.p:.2g}", "yes" if each.real else "no")
    covs = (each.cov_before, each.cov_after)
    return (
        each.label if each.what == BANDWIDTH else f"step time of {each.label}",
        _value(each, each.before),
        _value(each, each.after),
        *tested,
        *(_value(each, p5) for p5 in (each.p5_before, each.p5_after)),
        *(percent(cov) for cov in covs),
    )
