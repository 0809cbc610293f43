"""The report page: one HTML file that loads nothing, with its sections of facts."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from fabmon import __version__
from fabmon.analysis import causes
from fabmon.analysis.fluctuation.results import Fluctuation
from fabmon.fabric.hosts.nodesets import fold
from fabmon.fabric.model import DOWNLINK, HOST, RAIL, SWITCH, UPLINK, Fabric
from fabmon.fabric.tick import NodeState
from fabmon.fabric.time_wording import date_time, duration, event_time, interval
from fabmon.fabric.wording import bit_rate, byte_count, percent, percent_range, plural
from fabmon.report.page.digest import Digest
from fabmon.report.page.findings import findings
from fabmon.report.page.fluctuation import fluctuation
from fabmon.report.page.markup import Markup, joined, table, tag
from fabmon.report.page.timeline import heatmap, timeline

_ROLES = {RAIL: "rails of hosts", UPLINK: "uplinks of switches", DOWNLINK: "downlinks of switches"}
_TIERS = {0: "hosts", 1: "leaves", 2: "spines", 3: "cores"}
_MOST = 60


@dataclass(frozen=True, slots=True)
class ReportSource:
    """A recording that the page was made from; `losses` describe what could not be read of it."""

    name: str
    size: int
    tool: str
    recorder: str
    title: str
    losses: tuple[str, ...]


def cards(digest: Digest, sources: Sequence[ReportSource]) -> Markup:
    """The most important figures."""
    last, reported = digest.last, list(digest.findings.values())
    lost = sum(len(source.losses) for source in sources)
    nodes = len(last.fabric.nodes) if last is not None else 0
    up = last.nodes_up if last is not None else 0
    ports = Counter(port.role for port in digest.fabric.ports if port.node) if digest.fabric else {}
    worst = max(reported, key=lambda each: causes.lost_bandwidth(each.kept), default=None)
    loss = 0.0 if worst is None else causes.lost_bandwidth(worst.kept)
    severe = Counter(each.kept.severity for each in reported)
    kinds = ", ".join(f"{count} {severity}" for severity, count in sorted(severe.items()))
    if digest.left_out:
        kinds += f", {len(digest.left_out)} not shown"
    nothing = "no port had a rate"
    if digest.is_known:
        nothing = "no findings" if digest.has_line_rates else "full links not judged"
    shown = [
        (
            "findings",
            str(len(reported) + len(digest.left_out)) if digest.is_known or reported else "?",
            kinds or nothing,
        ),
        (
            "highest loss",
            percent(loss) if loss else "-",
            f"{causes.finding_title(worst.finding)} {worst.subject}" if worst else nothing,
        ),
        ("nodes", str(nodes), f"{up} up at the end"),
        (
            "links",
            str(digest.fabric.watched_cables() if digest.fabric is not None else 0),
            _watched_ends(ports),
        ),
        (
            "ticks",
            f"{digest.ticks:,}",
            f"one every {interval(last.interval_s)}" if last is not None else "",
        ),
        ("losses", str(lost) if lost else "none", "of the recording: see below" if lost else ""),
    ]
    return tag(
        "div",
        *(
            tag("div", tag("b", value), tag("span", name), tag("small", note), class_="card")
            for name, value, note in shown
        ),
        class_="cards",
    )


def _watched_ends(ports: Mapping[str, int]) -> str:
    """The ports of watched nodes at the ends of links, by role; a link may have two."""
    known = [plural(ports[role], role) for role in _ROLES if ports.get(role)]
    return f"with these ports: {', '.join(known)}" if known else ""


def recording(digest: Digest, sources: Sequence[ReportSource]) -> Markup:
    """The recordings of the page, and what could not be read of them."""
    rows = [
        (source.name, byte_count(source.size), source.tool or "?", source.recorder or "-")
        for source in sources
    ]
    losses = [f"{source.name}: {loss}" for source in sources for loss in source.losses]
    return joined(
        [
            table(("file", "size", "made by", "on"), rows),
            tag("p", tag("b", "Could not be read: ")) if losses else None,
            tag("ul", *(tag("li", loss) for loss in losses[:_MOST])) if losses else None,
            _rest(len(losses), "part"),
        ]
    )


def events(digest: Digest) -> Markup:
    """Events of nodes and jobs; findings have their own sections."""
    if not digest.events:
        return tag("p", "No node was lost, and no job changed its step time.", class_="muted")
    shown = digest.events[:_MOST]
    rest = len(digest.events) + digest.left_out_events - len(shown)
    return joined(
        [
            table(
                ("time", "what", ""),
                (
                    (event_time(event.time_ns, digest.bins.is_dated), event.kind, event.text)
                    for event in shown
                ),
            ),
            tag("p", f"{rest} more are not listed.", class_="muted") if rest > 0 else None,
        ]
    )


def jobs(digest: Digest) -> Markup | None:
    """Step time and communication share of each job, as last measured."""
    if not digest.jobs:
        return None
    said = "Hosts whose traffic correlates, as last measured."
    if not all(job.resolved for job in digest.jobs):
        said += " ?: steps shorter than two intervals between samples could look the same."
    rows = [
        (
            job.name,
            fold(job.hosts),
            job.step_text,
            percent_range(job.comm_low, job.comm_high),
            job.bound or "-",
        )
        for job in digest.jobs
    ]
    return joined(
        [
            tag("h2", "Jobs"),
            tag("p", said, class_="muted"),
            table(("job", "hosts", "step", "in communication", "bound by"), rows),
        ]
    )


def topology(digest: Digest) -> Markup:
    """Nodes, ports by line rate, ECMP groups, tiers, and nodes that are not up at the end."""
    fabric, last = digest.fabric, digest.last
    if fabric is None or last is None:
        return tag("p", "No node reported its ports.", class_="muted")
    rates: Counter[tuple[str, str]] = Counter()
    for port in fabric.ports:
        if port.node and port.role in _ROLES:
            rates[port.role, bit_rate(float(last.line_rate_bps[port.row]))] += 1
    rows = [(_ROLES[role], rate, str(count)) for (role, rate), count in sorted(rates.items())]
    groups = Counter((len(group.rows)) for group in fabric.groups)
    facts = [
        _nodes(fabric, HOST),
        _nodes(fabric, SWITCH),
        *(
            f"{plural(count, 'ECMP group')} of {plural(size, 'port')}"
            for size, count in sorted(groups.items())
        ),
        _tiers(fabric),
        f"{plural(len(fabric.contradictions), 'cable')} with contradicting sources"
        if fabric.contradictions
        else "",
    ]
    away = [status for status in last.statuses.values() if status.state is not NodeState.UP]
    return joined(
        [
            tag("ul", *(tag("li", each) for each in facts if each)),
            table(("ports", "line rate", "count"), rows, 2),
            tag("h3", "Not up at the end") if away else None,
            table(
                ("node", "state", "reason"),
                ((each.node, each.state.value, each.reason) for each in away[:_MOST]),
            )
            if away
            else None,
            _rest(len(away), "node"),
        ]
    )


def _rest(count: int, noun: str) -> Markup | None:
    """How many of so many are not listed; None where all are."""
    left = count - _MOST
    return (
        tag("p", f"{plural(left, f'more {noun}')} not listed.", class_="muted")
        if left > 0
        else None
    )


def _nodes(fabric: Fabric, role: str) -> str:
    names = [node.name for node in fabric.nodes if node.role == role]
    return f"{plural(len(names), role)}: {fold(names)}" if names else ""


def _tiers(fabric: Fabric) -> str:
    tiers = Counter(fabric.shape.tiers.values())
    return ", ".join(
        f"{count} {_TIERS.get(tier, 'above')}" for tier, count in sorted(tiers.items())
    )


def page(
    digest: Digest,
    sources: Sequence[ReportSource],
    steady: Fluctuation | None,
    refresh_s: int | None = None,
) -> str:
    """The page as HTML. Its policy allows only its own script, whatever the names of nodes are.

    Without `steady` it has no fluctuation; with `refresh_s` a browser loads it again.
    """
    style, script = _asset("style.css"), _asset("heatmap.js")
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{hashed}'"
    )
    begin, end = digest.bins.from_ns, digest.bins.until_ns
    title = next((source.title for source in sources if source.title), "fabric report")
    lasted = duration((end - begin) / 1e9)
    parts = {
        "Timeline": timeline(digest),
        "Findings": findings(digest),
        "Load of every link": heatmap(digest),
        **({} if steady is None else {"Fluctuation": fluctuation(steady)}),
        "Events": joined([events(digest), jobs(digest)]),
        "Fabric": topology(digest),
        **({"Recording": recording(digest, sources)} if steady is not None else {}),
    }
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="refresh", content=str(refresh_s)) if refresh_s else None,
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title}, {date_time(begin)}"),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        tag(
            "header",
            tag("h1", title),
            tag("p", f"{date_time(begin)} to {date_time(end)} · {lasted} · all times are UTC"),
        ),
        tag("nav", *(tag("a", title, href=f"#{_id(title)}") for title in parts)),
        cards(digest, sources),
        *(
            tag("section", tag("h2", title), part, class_="part", id=_id(title))
            for title, part in parts.items()
        ),
        tag(
            "footer",
            f"Made by fabmon {__version__} from raw counters; rates and findings were computed "
            "for this page. Traffic is in decimal units, each direction by itself. A dot means "
            "absent: not supported, not permitted or not known. It is never zero.",
        ),
        tag("script", Markup(script)),
    )
    return f"<!DOCTYPE html>\n{tag('html', joined([head, body]), lang='en')}\n"


def _id(title: str) -> str:
    return title.split()[0].lower()


def _asset(name: str) -> str:
    return files("fabmon.report.page").joinpath(name).read_text("utf-8")
