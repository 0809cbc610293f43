"""Search by name: nodes, ports, jobs, findings, metrics, views and commands.

The names of a fabric are one text with a name per line, made once per fabric; a query is a few
regular expressions over it, which run in C: a few milliseconds for 10,000 names.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from fabmon.analysis.causes import finding_title
from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Fabric, Port
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.wording import plural
from fabmon.tui.keys import Key
from fabmon.tui.line import FindingTarget, JobTarget, NodeTarget, PortTarget, SubjectTarget, Target
from fabmon.tui.metrics import metrics_of
from fabmon.tui.text import labels

MOST = 100
"""Results of a query, at most."""
_MOST_FUZZY = 2000
"""Loose matches that are ranked, at most: the first ones."""
_JOB = "job"


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that has a name. `opens` is a target, or an action of the app."""

    name: str
    kind: str
    about: str
    opens: Target | str


class _Lines:
    """Names as one text, lower case, one line each, and where each line starts."""

    def __init__(self, names: Iterable[str]) -> None:
        lines = [" ".join(name.lower().split()) for name in names]
        self.count = len(lines)
        self.text = "\n".join(lines)
        self._starts = [0]
        for each in lines:
            self._starts.append(self._starts[-1] + len(each) + 1)

    def matches(self, pattern: re.Pattern[str], most: int) -> list[tuple[int, int]]:
        """(number of the line, length of the match) of the first `most` matches."""
        if not self.count:
            return []
        found = islice(pattern.finditer(self.text), most)
        return [(bisect_right(self._starts, at.start()) - 1, len(at.group(1))) for at in found]


class NameIndex:
    """The names of a fabric's nodes and ports, after others that change more often."""

    def __init__(self, fabric: Fabric | None, others: Sequence[Entry] = ()) -> None:
        """Index a fabric; None: no names."""
        self.fabric = fabric
        self._others = tuple(others)
        self._other_lines = _Lines(each.name for each in self._others)
        self._nodes = () if fabric is None else fabric.nodes
        self._ports: tuple[Port, ...] = ()
        if fabric is not None:
            self._ports = tuple(port for port in fabric.ports if port.node)
        nodes = (node.name for node in self._nodes)
        ports = (f"{port.display_name} {port.name}" for port in self._ports)
        self._lines = _Lines([*nodes, *ports])

    def with_others(self, others: Sequence[Entry]) -> NameIndex:
        """The same index of the fabric, with these other names before it."""
        made = NameIndex(None, others)
        made.fabric, made._nodes, made._ports = self.fabric, self._nodes, self._ports
        made._lines = self._lines
        return made

    def search(self, query: str) -> list[Entry]:
        """The best matches, at most `MOST`: the whole name, its start, a part, the words in any
        order, then the characters in order (`l1u5` is leaf1 up5), the tightest first. An empty
        query finds everything but nodes and ports."""
        words = query.lower().split()
        if not words:
            return list(self._others[:MOST])
        found: dict[tuple[bool, int], None] = {}
        for pattern, is_fuzzy in _patterns(words):
            if len(found) >= MOST:
                break
            matches = [
                (length, is_fabric, number)
                for is_fabric, lines in ((False, self._other_lines), (True, self._lines))
                for number, length in lines.matches(pattern, _MOST_FUZZY if is_fuzzy else MOST)
            ]
            for _, is_fabric, number in sorted(matches) if is_fuzzy else matches:
                found.setdefault((is_fabric, number))
        return [self._entry(*each) for each in islice(found, MOST)]

    def _entry(self, is_fabric: bool, number: int) -> Entry:
        if not is_fabric:
            return self._others[number]
        if number < len(self._nodes):
            node = self._nodes[number]
            return Entry(node.name, node.role, node.group, NodeTarget(node.name))
        port = self._ports[number - len(self._nodes)]
        assert self.fabric is not None
        _, arrow, far = labels.both_ends(port, self.fabric).partition(" → ")
        return Entry(port.display_name, port.role or "port", arrow.lstrip() + far or port.name,
                     PortTarget(port.row))  # fmt: skip


def _patterns(words: Sequence[str]) -> list[tuple[re.Pattern[str], bool]]:
    """Regular expressions of a line, best first, and whether it is the loose one. The first group
    is what has to be short."""
    exact = re.escape(" ".join(words))
    every = "".join(rf"(?=[^\n]*{re.escape(word)})" for word in words)
    first, rest = words[0][0], "".join(words)[1:]
    loose = re.escape(first) + "".join(
        rf"[^{re.escape(each)}\n]*{re.escape(each)}" for each in rest
    )
    texts = (
        (rf"^({exact})$", False),
        (rf"^({exact})\b", False),
        (rf"^({exact})", False),
        (rf"^[^\n]*?({exact})", False),
        (rf"^{every}([^\n]*)", False),
        (rf"^[^{re.escape(first)}\n]*({loose})", True),
    )
    return [(re.compile(text, re.MULTILINE), is_fuzzy) for text, is_fuzzy in texts]


def commands(table: Sequence[Key], refused: Collection[str]) -> list[Entry]:
    """The views, then the other commands: the keys that have a title, as the user has them."""
    every = [key for key in table if key.title and key.action not in refused]
    views = [key for key in every if key.action.startswith("view(")]
    rest = [key for key in every if key not in views]
    return [
        *(Entry(key.title, "view", _about(key), key.action) for key in views),
        *(Entry(key.title, "command", _about(key), key.action) for key in rest),
    ]


def _about(key: Key) -> str:
    return f"{key.help} ({key.shown})" if key.shown else key.help


def metric_entries(snapshot: Snapshot | None) -> list[Entry]:
    """The metrics that this fabric has."""
    return [
        Entry(each.name, "metric", each.title, f"metric_named({each.name!r})")
        for each in metrics_of(snapshot)
    ]


def scene_entries(scene: Scene) -> list[Entry]:
    """The open findings and the jobs."""
    fabric = scene.snapshot.fabric
    found = [
        Entry(
            f"{finding_title(each)} {labels.subject_name(each, fabric)}",
            "finding",
            each.text,
            FindingTarget(each.key),
        )
        for each in scene.findings
    ]
    jobs = [
        Entry(job.label, _JOB, plural(len(job.nodes), "node"), JobTarget(job.number))
        for job in scene.snapshot.jobs.jobs
    ]
    groups = [
        Entry(f"job {job.name}", _JOB, f"step {job.step_text}", SubjectTarget(_JOB, job.name))
        for job in scene.iteration_report.jobs
        if job.job is None
    ]
    return [*found, *jobs, *groups]
