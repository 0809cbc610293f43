"""Two runs compared, for a person: first the answer, then how it was found, then every link."""

from __future__ import annotations

from collections.abc import Iterator

from fabmon.analysis.fluctuation.compare import BANDWIDTH, LEAST, LEVEL, Comparison, Difference
from fabmon.report.table import aligned
from fabmon.report.units import bits

_MOST_LINKS = 40


def comparison_table(found: Comparison) -> str:
    """The whole report."""
    return "\n".join(_lines(found))


def _lines(found: Comparison) -> Iterator[str]:
    yield from map(_sentence, found.headlines)
    if not found.headlines:
        yield "Cannot tell: A and B have no rail and no job in common that communicates."
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
        "MED A",
        "MED B",
        "P5 A",
        "P5 B",
        "CoV A",
        "CoV B",
    )
    yield from aligned([head, *map(_row, shown)], left=1)
    if len(order) > _MOST_LINKS:
        yield f"and {len(order) - _MOST_LINKS} more that changed less; --format json has all"


def _sentence(each: Difference) -> str:
    is_rate = each.what == BANDWIDTH
    what = f"{'the bandwidth' if is_rate else 'an iteration'} of {each.name}"
    values = f"{_value(each, each.before)} in A, {_value(each, each.after)} in B"
    if each.change is None or each.low is None or each.high is None or each.p is None:
        return f"Cannot tell: {what}: {values}; {each.untested}."
    more = each.change > 0
    way = ("higher" if more else "lower") if is_rate else ("longer" if more else "shorter")
    size = f"{abs(each.change) * 100:.1f} % {way} in B"
    if size.startswith("0.0 %"):
        size = "the same in B to 0.1 %"
    ranged = f"95 % sure: {each.low * 100:+.1f} to {each.high * 100:+.1f} %, {_chance(each.p)}"
    if each.real:
        return f"Yes, {what} is {size}: {values} ({ranged})."
    if each.p < LEVEL and abs(each.change) < LEAST:
        least = f"{LEAST * 100:.1f} %"
        return f"No, {what} is {size}, sure but below {least}: {values} ({ranged})."
    reach = max(abs(each.low), abs(each.high)) * 100
    return (
        f"No, {what} is {size}, within the noise: {values} ({ranged}); more than {reach:.1f} % is "
        "ruled out."
    )


def _chance(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _value(each: Difference, value: float) -> str:
    if value != value:
        return "nothing"
    return bits(value) if each.what == BANDWIDTH else f"{value:.3f} s"


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
        *(
            bits(value)
            for value in (each.median_before, each.median_after, each.p5_before, each.p5_after)
        ),
        *("·" if c is None else f"{c * 100:.1f} %" for c in (each.cov_before, each.cov_after)),
    )
