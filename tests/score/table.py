"""The report: a table a view, precision, recall and time to flag of each cause."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from tests.score.match import COLLISION, Score, leaves_named


@dataclass
class _Line:
    must: int = 0
    found: int = 0
    right: int = 0
    wrong: int = 0
    delays_s: list[float] = field(default_factory=list)
    plain_found: int = 0

    @property
    def precision(self) -> float | None:
        reported = self.right + self.wrong
        return self.right / reported if reported else None

    @property
    def recall(self) -> float | None:
        return self.found / self.must if self.must else None


def report(
    watched: Sequence[Score], hosts: Sequence[Score], healthy: Sequence[tuple[int, Score]]
) -> str:
    """All of it, as Markdown."""
    parts = [_HEAD]
    if watched:
        parts += [f"## Every switch watched ({len(watched)} fabrics)\n", _table(watched)]
    if hosts:
        parts += [f"## Hosts alone ({len(hosts)} fabrics)\n", _table(hosts), _calibration(hosts)]
    if healthy:
        hours = sum(seconds for seconds, _ in healthy) / 3600
        count = sum(len(each.reported) for _, each in healthy)
        plain = sum(len(each.plain_wrong) + len(each.plain_right) for _, each in healthy)
        parts.append(
            f"## Health\n\n{hours:g} simulated hours of healthy mixed training at 1 Hz:"
            f" {count} findings; the plain rule flagged {plain} links.\n"
        )
    return "\n".join(parts)


_HEAD = """# How good the findings are

Made by `make score`: random simulated fabrics (tests/score/draw.py), a quarter of them healthy, the
others with one fault or two. Seeds from 8401 on; those below 1001 were tuned on. What was missed in
1001 to 1200, 3001 to 3600, 5001 to 5500, 6001 to 6100 and 7001 to 8400 was looked at, seed by seed,
and where a rule or the truth was wrong for a reason that is not the seed's, it was fixed. The
truth is the simulator's script and, for collisions, its queues, those of healthy hashing included
(tests/score/congestion.py).

- *Precision*: of the findings that opened, how many are right in cause and place, and not a
  repetition. Left out are collisions of links that have a queue for too short a time to count, and
  those before a polarization that is recognised some seconds later.
- *Recall*: of what lasted 8 s or more, how much was found; a straggler must have been late twice,
  and uneven rails must have sent for 8 s.
  A link that is as full as the one that feeds it counts as found when that one's finding names it,
  and so does what a finding that is still open has reported; from hosts alone, an open finding that
  comes to name the senders of one more link has found it.
- *Time* is from the first second in which the fault made a difference to any counter, at one sample
  a second; of what an open finding had reported already there is none.
- The *plain rule* (any link above 90 % of line rate for 5 s) knows no causes: it is right when
  anything at all is wrong with the link, or finds it when it flags one of its links.
"""


def _table(scores: Sequence[Score]) -> str:
    lines: dict[str, _Line] = defaultdict(_Line)
    rights: dict[str, set[int]] = defaultdict(set)
    plain_right = plain_wrong = 0
    for score in scores:
        for number, each in enumerate(score.expected):
            line = lines[each.cause]
            rights[each.cause] |= {id(reported) for reported in each.found}
            if each.must:
                line.must += 1
                line.found += bool(each.found)
                line.plain_found += number in score.plain_found
                if each.found_s is not None:
                    line.delays_s.append(each.found_s - each.onset_s)
        for reported in score.wrong:
            lines[reported.cause].wrong += 1
        plain_right += len(score.plain_right)
        plain_wrong += len(score.plain_wrong)
    for cause, found_by in rights.items():
        lines[cause].right = len(found_by)
    delays = [delay for line in lines.values() for delay in line.delays_s]
    rows = [
        "| cause | to find | found | wrong | precision | recall | median time | plain rule finds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cause in sorted(lines):
        line = lines[cause]
        time = f"{median(line.delays_s):.1f} s" if line.delays_s else ""
        by_rule = f"{line.plain_found / line.must:.2f}" if line.must else ""
        rows.append(
            f"| {cause} | {line.must} | {line.found} | {line.wrong} | {_two(line.precision)}"
            f" | {_two(line.recall)} | {time} | {by_rule} |"
        )
    must = sum(line.must for line in lines.values())
    found = sum(line.found for line in lines.values())
    right = sum(line.right for line in lines.values())
    wrong = sum(line.wrong for line in lines.values())
    plain = sum(line.plain_found for line in lines.values())
    share = plain_right / (plain_right + plain_wrong) if plain_right + plain_wrong else None
    rows += [
        f"| **all** | {must} | {found} | {wrong} | {_two(right / max(1, right + wrong))}"
        f" | {_two(found / max(1, must))} | {median(delays) if delays else 0:.1f} s"
        f" | {plain / max(1, must):.2f} |",
        "",
        f"The plain rule's precision is {_two(share)} ({plain_right + plain_wrong} flags).",
        "",
    ]
    return "\n".join(rows)


def _calibration(scores: Sequence[Score]) -> str:
    """How often collisions that were inferred were right, by the confidence that was reported."""
    bins: dict[int, list[bool]] = defaultdict(list)
    for score in scores:
        wrong = {id(reported) for reported in score.wrong}
        for reported in score.reported:
            if reported.cause == COLLISION:
                bins[int(reported.confidence * 10)].append(id(reported) not in wrong)
    if not bins:
        return ""
    rows = ["| confidence reported | findings | right |", "|---|---|---|"]
    rows += [
        f"| {tenth / 10:.1f} to {tenth / 10 + 0.1:.1f} | {len(reported)}"
        f" | {sum(reported) / len(reported):.2f} |"
        for tenth, reported in sorted(bins.items())
    ]
    collisions = [each for score in scores for each in score.reported if each.cause == COLLISION]
    wrong = {id(reported) for score in scores for reported in score.wrong}
    named = [each for each in collisions if any(leaves_named(each))]
    right = sum(id(reported) not in wrong for reported in named)
    leaves = (
        f"{len(named)} of these findings name a leaf (in half of the fabrics the hosts know theirs"
        f" by LLDP); in {right} a link of that leaf had the queue."
    )
    return "\n".join(["Collisions inferred from hosts alone:", "", *rows, "", leaves, ""])


def _two(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
