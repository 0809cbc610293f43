"""One finding, explained: its sentence, a picture, what to do, then the numbers behind it.

On a terminal of 80x24 the sentence, the picture and the advice are seen without scrolling.
"""

from __future__ import annotations

from rich.cells import cell_len

from fabmon.analysis.finding import Finding, sentence
from fabmon.analysis.scene import Scene
from fabmon.fabric.time_wording import SECOND_NS, duration, time_of_day
from fabmon.fabric.wording import evidence_value, percent
from fabmon.tui.line import Hit, Line, NodeTarget, fit, line, right, wrap
from fabmon.tui.palette import Palette
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.text import flows, labels
from fabmon.tui.text.picture.canvas import Canvas
from fabmon.tui.text.picture.pictures import picture

_NAME = 28
_LEAST_PICTURE = 8
"""Lines that a picture has, however low the screen is."""


def page(
    screen_state: ScreenState,
    scene: Scene,
    finding: Finding,
    open_now: bool,
    width: int,
    height: int,
) -> list[Line]:
    """The whole of a finding; what comes first fits into `height` lines."""
    palette = screen_state.palette
    title = _title(finding, scene, open_now, width, palette)
    advice = _section("Advice", finding.advice, width, palette)
    advice += flows.next_step(screen_state, scene, finding, width)
    room = max(_LEAST_PICTURE, height - len(title) - len(advice))
    return [
        *title,
        *picture(Canvas(screen_state, scene, finding, width, room)),
        *advice,
        *_evidence(finding, width, palette),
        *_victims(finding, scene, width, palette),
        *flows.of_finding(screen_state, scene, finding, width),
        *_section("Not visible", finding.unseen, width, palette),
    ]


def _section(title: str, text: str, width: int, palette: Palette) -> list[Line]:
    """A word, and what there is to say beside it and below; nothing where there is nothing."""
    if not text:
        return []
    first, *rest = wrap(text, width - len(title) - 5)
    # What follows the first line has the whole width.
    more = wrap(" ".join(rest), width - 4) if rest else []
    lines = [line((f" {title}: ", palette.strong), (first, palette.text))]
    return [*lines, *(line((f"   {part}", palette.text)) for part in more)]


def _victims(finding: Finding, scene: Scene, width: int, palette: Palette) -> list[Line]:
    """Who suffers under it, a line a node, which it opens."""
    if not finding.victims:
        return []
    nodes = {node.name for node in scene.snapshot.fabric.nodes}
    of: dict[str, list[str]] = {}
    for victim in labels.victim_names(finding, scene.snapshot.fabric):
        name, _, port = victim.replace(" ", "/", 1).partition("/")
        of.setdefault(name, []).append(port)
    lines = [line((" Suffers under it", palette.strong))]
    for name, ports in of.items():
        if ports != [""]:
            said = f"   → {name} {labels.name_list(ports, max(8, width - len(name) - 8))}"
            target = NodeTarget(name) if name in nodes else None
            lines.append(line((fit(said, width).rstrip(), palette.text), target=target))
    alone = [name for name, ports in of.items() if ports == [""]]
    return lines + _names(alone, nodes, width, palette)


def _names(names: list[str], nodes: set[str], width: int, palette: Palette) -> list[Line]:
    """Nodes beside each other, as many to a line as it holds; each opens."""
    lines: list[Line] = []
    hits: list[Hit] = []
    text = ""
    for name in [*names, ""]:
        if not name or (text and cell_len(text) + 2 + cell_len(name) > width):
            if text:
                lines.append(line((text, palette.text), hits=tuple(hits)))
            text, hits = "", []
        if name:
            text = f"{text}, " if text else "   → "
            if name in nodes:
                start = cell_len(text)
                hits.append(Hit(start, start + cell_len(name), NodeTarget(name)))
            text += name
    return lines


def _title(
    finding: Finding, scene: Scene, open_now: bool, width: int, palette: Palette
) -> list[Line]:
    """Cause and subject, the sentence, since when, how sure."""
    snapshot = scene.snapshot
    mark, accent = (
        labels.finding_sign(finding, snapshot, palette) if open_now else ("△", palette.dim)
    )
    until = finding.until_ns or snapshot.time_ns
    lasted = duration((until - finding.since_ns) / SECOND_NS)
    when = f"since {time_of_day(finding.since_ns)} ({lasted})"
    if not open_now:
        when = f"not open any more; began {time_of_day(finding.since_ns)}"
    costs = f"costs {percent(finding.lost)} of the bandwidth, " if finding.lost > 0 else ""
    subject = labels.subject_name(finding, snapshot.fabric)
    return [
        line((f" {mark} {labels.cause_title(finding)}  ", accent), (subject, palette.strong)),
        *(
            line((f"   {part}", palette.text))
            for part in wrap(sentence(finding, snapshot), width - 4)
        ),
        *(
            line((f"   {part}", palette.dim))
            for part in wrap(f"{when}, {costs}{finding.confidence * 100:.0f} % sure", width - 4)
        ),
    ]


def _evidence(finding: Finding, width: int, palette: Palette) -> list[Line]:
    """The numbers behind it, as a table."""
    if not finding.evidence:
        return []
    lines = [line((" Evidence", palette.strong))]
    longest = max(cell_len(item.name) for item in finding.evidence)
    name = max(_NAME, min(longest + 2, width - 20))
    for item in finding.evidence:
        value = evidence_value(item.value, item.unit)
        said = value if isinstance(item.value, str) else right(value, 14)
        first, *rest = wrap(said, width - name - 4) if isinstance(item.value, str) else [said]
        lines.append(line((f"   {fit(item.name, name)}{first}", palette.text)))
        lines += [line((" " * (name + 3) + part, palette.text)) for part in rest]
    return lines
