"""Bandwidth over the time, with the steps of its level marked and told."""

from __future__ import annotations

from fabmon.analysis.fluctuation.records import ALL, JOB, KINDS, LINK, Fluctuation, Step, Subject
from fabmon.report.fluctuation import NO_STEP, largest_steps, name_of, step_words
from fabmon.report.page import axis, words
from fabmon.report.page.markup import Markup, joined, table, tag
from fabmon.report.units import bits

_ROW, _CURVE, _TOP = 58.0, 38.0, 14.0
_MOST_ROWS, _MOST_STEPS = 8, 20


def levels(found: Fluctuation) -> Markup:
    """Curves of all rails, of jobs, and of what else has steps; then the steps by time."""
    kinds = [kind for kind in KINDS if kind != LINK]
    shown, more = largest_steps(found, kinds, _MOST_STEPS)
    rows = [each for kind in (ALL, JOB) for each in found.of(kind) if each.spread is not None]
    rows += [each for _, each in shown if each not in rows]
    rows = list({(each.kind, each.name): each for each in rows}.values())[:_MOST_ROWS]
    if not rows:
        return tag("p", "Nothing communicated.", class_="muted")
    told: Markup = tag("p", NO_STEP)
    if shown:
        cells = [step_words(*each) for each in shown]
        told = joined(
            [
                tag("div", table(("TIME", "WHAT", "LEVEL", "CHANGE"), cells), class_="wide"),
                tag("p", f"{more} smaller ones are left out.", class_="muted") if more else None,
            ]
        )
    return joined([_curves(found, rows), told])


def _curves(found: Fluctuation, rows: list[Subject]) -> Markup:
    bottom = _TOP + _ROW * len(rows)
    parts = [axis.grid(found.from_ns, found.until_ns, 0, bottom)]
    for number, subject in enumerate(rows):
        parts += _row(found, subject, _TOP + _ROW * number)
    return tag(
        "figure",
        tag(
            "svg",
            *parts,
            viewBox=f"0 0 {axis.WIDTH:g} {bottom + 18:g}",
            role="img",
            aria_label="bandwidth over the time, with its steps",
        ),
        tag(
            "figcaption",
            "Medians of equal parts of the time, of means of 10 s of communication, from nothing "
            "to the highest of a row. A line with a number is a step. Times are UTC.",
        ),
    )


def _row(found: Fluctuation, subject: Subject, top: float) -> list[Markup]:
    highest = max((value for value in subject.strip if value is not None), default=0.0) or 1.0
    width = (axis.WIDTH - axis.LEFT) / max(1, len(subject.strip))
    base = top + _CURVE
    area, line, was_there = "", "", False
    for place, value in enumerate(subject.strip):
        if value is None:
            was_there = False
            continue
        x, y = axis.LEFT + place * width, base - _CURVE * value / highest
        area += f"M{x:.1f} {base:g}V{y:.1f}h{width:.2f}V{base:g}z"
        line += f"{'L' if was_there else 'M'}{x:.1f} {y:.1f}h{width:.2f}"
        was_there = True
    return [
        tag("text", name_of(subject)[:22], x=0, y=top + 16, class_="name"),
        tag("text", f"highest {bits(highest)}", x=0, y=top + 30, class_="axis"),
        tag("path", d=area, class_="band"),
        tag("path", d=line, class_="median"),
        tag("line", x1=axis.LEFT, x2=axis.WIDTH, y1=base, y2=base, class_="grid"),
        *(_mark(found, subject, step, top, base) for step in subject.steps),
    ]


def _mark(found: Fluctuation, subject: Subject, step: Step, top: float, base: float) -> Markup:
    x = axis.place(step.at_ns, found.from_ns, found.until_ns)
    is_right = x > axis.WIDTH * 0.85
    return tag(
        "g",
        tag("title", ", ".join(step_words(step, subject))),
        tag("line", x1=x, x2=x, y1=top - 10, y2=base, class_="step"),
        tag(
            "text",
            f"{words.clock(step.at_ns)[:5]} {step.change * 100:+.0f} %",
            x=x - 4 if is_right else x + 4,
            y=top - 2,
            class_="hot",
            text_anchor="end" if is_right else "start",
        ),
    )
